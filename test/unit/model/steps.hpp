/*
 * steps.hpp - the steps of publisher, sweep, VACUUM, scan, errors and crashes.
 *
 * A step that cannot be taken now (a lock is held) adds nothing.
 */
#pragma once
#include "state.hpp"

enum PC : u8
{
	DONE,
	P_BEGIN, P_FIND, P_FIRST, P_APPEND_LOCK, P_TAKE, P_CHECK, P_ENDBATCH, P_COMMIT,
	A_LEAF, A_TAKE,
	W_HEAD, W_LOCK, W_READ, W_TRUNCATE, W_FREE, W_UNLOCK,
	F_BEGIN, F_END,
	V_BEGIN, V_CYCLE, V_LEAF, V_BACK, V_DONE, V_HEAP, V_MAP,
	C_PIN, C_CLOSE,
	R_SNAP, R_META, R_PAGE, R_TAIL, R_LEAF, R_END
};

inline void push(Steps &out, const State &n, int i, const char *what, bool fault = false)
{
	out.push_back({n, what, (u8) i, fault});
}

inline void finish(Proc &p)
{
	memset(&p, 0, sizeof p);
}

/* where a sweep begins: a broken rule reads something before the lock */
inline u8 sweep_entry(u32 rules)
{
	return rules & BATCH_BEFORE_LOCK ? W_READ : rules & V_BEFORE_LOCK ? W_HEAD : W_LOCK;
}

inline u8 first_pc(const Spec &spec, u32 rules)
{
	switch (spec.role)
	{
		case PUBLISHER: return P_BEGIN;
		case FLUSHER: return F_BEGIN;
		case VACUUM: return V_BEGIN;
		case CURSOR: return C_PIN;
		case READER: break;
	}
	return spec.ents ? P_BEGIN : rules & (TAIL_BEFORE_SNAPSHOT | HEAD_BEFORE_SNAPSHOT) ? R_META : R_SNAP;
}

inline State Model::init() const
{
	State		s;

	memset(&s, 0, sizeof s);
	layout(s);
	for (size_t i = 0; i < procs.size(); i++)
		s.p[i].pc = first_pc(procs[i], rules);
	return s;
}

inline bool Model::ended(const State &s) const
{
	for (auto &p : s.p)
		if (p.pc != DONE)
			return false;
	return true;
}

/* ---------- publisher ---------- */

inline void Model::start_batch(Proc &p, const Spec &spec) const
{
	u8			set = p.batch ? spec.ents2 : spec.ents;

	if (spec.flags & DIRECT)
	{
		p.todo = set;
		p.after_apply = P_ENDBATCH;
		p.pc = A_LEAF;
	}
	else
		p.pc = p.blk ? P_APPEND_LOCK : P_FIND;
}

inline void Model::publish(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	const Spec &spec = procs[i];

	switch (p.pc)
	{
		case P_BEGIN:
			if ((spec.flags & REUSES) && !s.heap_free)
				return;
			if (off(COMMIT_FIRST))
				n.done |= spec.ents | spec.ents2;
			start_batch(p, spec);
			return push(out, n, i, "tuples in the heap, statement ends: batch sorted");
		case P_FIND:
			if (!s.tail_blk)
				p.pc = P_FIRST;
			else
			{
				p.blk = s.tail_blk;
				p.seq = seq_of(s.tail);
				p.pc = P_APPEND_LOCK;
			}
			return push(out, n, i, "metapage read: where the tail is");
		case P_FIRST:
			return append_first(s, i, out);
		case P_APPEND_LOCK:
			return append(s, i, out);
		case P_TAKE:
			return take_page(s, i, P_CHECK, out);
		case P_CHECK:
			p.pc = is_free(s, p.fresh) ? (p.blk ? P_APPEND_LOCK : P_FIND) : P_TAKE;
			if (p.pc == P_TAKE)
				p.fresh = 0;
			return push(out, n, i, p.fresh ? "page locked, is free, unlocked" : "page locked, is not free");
		case P_ENDBATCH:
			if (spec.ents2 && !p.batch)
			{
				p.batch = 1;
				start_batch(p, spec);
				return push(out, n, i, "next batch");
			}
			p.blk = p.seq = p.batch = 0;
			p.pc = spec.role == READER ? R_SNAP : P_COMMIT;
			push(out, n, i, "stage is empty");
			if (!(spec.flags & SWEEPS))
				return;
			p.after_sweep = P_COMMIT;
			p.pc = sweep_entry(rules);
			return push(out, n, i, "journal is past its limit: sweep");
		case P_COMMIT:
			n.done |= spec.ents | spec.ents2;
			finish(p);
			return push(out, n, i, "COMMIT");
	}
}

/* no journal page yet: the metapage's lock is the append lock */
inline void Model::append_first(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	if (s.tail_blk)
	{
		p.pc = P_FIND;
		return push(out, n, i, "metapage locked: another made the first page");
	}
	if (!p.fresh)
	{
		p.pc = P_TAKE;
		return push(out, n, i, "needs a page");
	}
	if (!is_free(s, p.fresh) && !off(NO_RECHECK))
	{
		p.fresh = 0;
		p.pc = P_TAKE;
		return push(out, n, i, "page locked under the append lock: no longer free");
	}
	if (!is_free(s, p.fresh))
		n.err = E_TWO_THINGS;
	memset(&n.b[p.fresh], 0, sizeof(Block));
	n.b[p.fresh].type = JOURNAL;
	n.b[p.fresh].seq = 1;
	n.b[p.fresh].slot[n.b[p.fresh].n++] = procs[i].ents;
	n.tail_blk = p.fresh;
	n.tail = pos_of(1, 0);
	p.fresh = 0;
	p.pc = P_ENDBATCH;
	push(out, n, i, "first journal page made, batch appended (WAL)");
}

/* with the append lock: the exclusive lock of the page believed to be the last */
inline void Model::append(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	const Block &c = s.b[p.blk];
	u8			set = p.batch ? procs[i].ents2 : procs[i].ents, to = p.blk;
	const char *what = "append lock taken: batch appended (WAL)";

	if (c.type != JOURNAL || (c.seq != p.seq && !off(APPEND_TYPE_ONLY)))
	{
		p.blk = p.seq = 0;
		p.pc = P_FIND;
		return push(out, n, i, "page locked: not the journal page expected");
	}
	if (c.next)
	{
		p.blk = c.next;
		p.seq = c.seq + 1;
		return push(out, n, i, "page locked: has a successor, goes there");
	}
	if (c.n >= slots)
	{
		if (p.fresh && (is_free(s, p.fresh) || off(NO_RECHECK)))
		{
			if (!is_free(s, p.fresh))
				n.err = E_TWO_THINGS;
			to = n.b[p.blk].next = p.fresh;
			memset(&n.b[to], 0, sizeof(Block));
			n.b[to].type = JOURNAL;
			n.b[to].seq = c.seq + 1;
			p.fresh = 0;
			what = "append lock taken: page linked, batch appended (WAL)";
		}
		else
		{
			what = p.fresh ? "page locked under the append lock: no longer free" : "append lock taken: last page is full, needs a page";
			p.fresh = 0;
			p.pc = P_TAKE;
			return push(out, n, i, what);
		}
	}
	n.b[to].slot[n.b[to].n++] = set;
	if (p.fresh)
		n.fsm |= 1 << p.fresh;
	p.fresh = 0;
	p.blk = to;
	p.seq = n.b[to].seq;
	p.pc = P_ENDBATCH;
	push(out, n, i, what);
}

inline void Model::take_page(const State &s, int i, u8 then, Steps &out) const
{
	for (u8 b = 1; b < NBLK; b++)
		if (s.fsm >> b & 1)
		{
			State		n = s;

			n.fsm &= ~(1 << b);
			n.p[i].fresh = b;
			n.p[i].pc = then;
			push(out, n, i, "page taken from the free space map");
			if (!any_free)
				return;
		}
	if (s.fsm)
		return;
	State		n = s;

	if (s.nblocks + 1 >= NBLK)
		n.err = E_NO_BLOCKS;
	else
		n.p[i].fresh = ++n.nblocks;
	n.p[i].pc = then;
	push(out, n, i, "relation extended by a zero page");
}

/* ---------- applying entries to the tree ---------- */

inline void Model::apply(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	if (p.pc == A_TAKE)
		return take_page(s, i, A_LEAF, out);

	u8			low, leaf = leaf_for(s, lowest(p.todo), &low);
	u8			mine = p.todo & keys(low, s.b[leaf].high), set = s.b[leaf].slot[0] | mine;
	const char *what = "one leaf's entries applied (WAL)";

	if (__builtin_popcount(set) > leaf_room)
	{
		if (!p.fresh || !is_free(s, p.fresh))
		{
			what = p.fresh ? "page locked: not free" : "leaf locked: must split, needs a page";
			p.fresh = 0;
			p.pc = A_TAKE;
			return push(out, n, i, what);
		}
		split(n, p, leaf, set);
		what = "leaf split, entries applied (WAL)";
	}
	else
		n.b[leaf].slot[0] = set;
	p.todo &= ~mine;
	if (!p.todo)
	{
		if (p.fresh)
			n.fsm |= 1 << p.fresh;
		p.fresh = 0;
		p.pc = p.after_apply;
		p.after_apply = 0;
	}
	push(out, n, i, what);
}

/* the left half stays in its block, the right one goes to the fresh page */
inline void Model::split(State &n, Proc &p, u8 leaf, u8 set) const
{
	Block	   &l = n.b[leaf], &r = n.b[p.fresh];
	u8			left = 0;

	for (int k = __builtin_popcount(set) / 2; k > 0; k--)
		left |= (set & ~left) & -(set & ~left);
	if (off(REDO_LEFT_FIRST))
	{
		n.half = p.fresh;
		n.half_set = set & ~left;
		n.half_high = l.high;
		n.half_next = l.next;
	}
	else
	{
		memset(&r, 0, sizeof r);
		r.type = LEAF;
		r.slot[0] = set & ~left;
		r.high = l.high;
		r.next = l.next;
		r.cycle = n.cycle;
	}
	l.slot[0] = left;
	l.high = lowest(set & ~left);
	l.next = p.fresh;
	l.cycle = n.cycle;
	p.fresh = 0;
}

/* broken rule: redo let the left half go before it made the right one */
inline void Model::replay(const State &s, Steps &out) const
{
	State		n = s;
	Block	   &r = n.b[s.half];

	memset(&r, 0, sizeof r);
	r.type = LEAF;
	r.slot[0] = s.half_set;
	r.high = s.half_high;
	r.next = s.half_next;
	n.half = n.half_set = n.half_high = n.half_next = 0;
	push(out, n, 98, "the split's right half");
}

/* ---------- sweep ---------- */

/* V := head, and the entries of [tail, V) */
inline void Model::sweep_read(State &n, Proc &p, u8 leave_out, bool v_known) const
{
	u8			set;

	p.from = n.tail;
	if (!v_known)
		p.upto = head(n, &p.upto_blk);
	set = journal_from(n, n.tail);
	if (v_known)
		set &= ~journal_from(n, p.upto);
	n.left_out |= set & leave_out;
	p.todo = set & ~leave_out;
}

/* tail := V; the pages below it are remembered in todo */
inline void Model::truncate(State &n, Proc &p) const
{
	u8			lost = journal_from(n, n.tail) & ~journal_from(n, p.upto) & ~tree(n) & ~n.left_out;

	p.todo = 0;
	if (p.upto <= n.tail && !off(V_BEFORE_LOCK))
		return;
	if (lost)
		n.err = E_TRUNCATED;
	for (u8 b = n.tail_blk; b && b != p.upto_blk; b = n.b[b].next)
		p.todo |= 1 << b;
	n.tail = p.upto;
	n.tail_blk = p.upto_blk;
}

inline void Model::sweep(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	const Spec &spec = procs[i];
	bool		waits = (spec.flags & WAITS) || (spec.role == VACUUM && !off(DRAIN_NOWAIT)) || spec.role == CURSOR;

	switch (p.pc)
	{
		case W_HEAD:
			p.upto = head(s, &p.upto_blk);
			p.pc = W_LOCK;
			return push(out, n, i, "V := head");
		case W_LOCK:
			if (s.sweeper && waits)
				return;
			if (s.sweeper)
			{
				p.upto = p.upto_blk = p.from = p.todo = 0;
				p.pc = p.after_sweep;
				return push(out, n, i, "LockPage(1) not free: no sweep");
			}
			n.sweeper = (u8) (i + 1);
			p.after_apply = W_TRUNCATE;
			p.pc = off(BATCH_BEFORE_LOCK) ? (p.todo ? A_LEAF : W_TRUNCATE) : W_READ;
			return push(out, n, i, "LockPage(1) taken");
		case W_READ:
			sweep_read(n, p, spec.flags & KEEPS_DEAD ? 0 : p.dead, off(V_BEFORE_LOCK));
			p.after_apply = W_TRUNCATE;
			p.pc = off(BATCH_BEFORE_LOCK) ? W_LOCK : p.todo && !off(TRUNCATE_FIRST) ? A_LEAF : W_TRUNCATE;
			return push(out, n, i, "V := head, entries of [tail, V) read");
		case W_TRUNCATE:
			truncate(n, p);
			p.pc = p.todo ? W_FREE : W_UNLOCK;
			p.from = p.upto = p.upto_blk = p.after_apply = 0;
			return push(out, n, i, "tail := V (WAL)");
		case W_FREE:
			n.fsm |= p.todo;
			p.todo = 0;
			p.pc = W_UNLOCK;
			return push(out, n, i, "pages below V to the free space map");
		case W_UNLOCK:
			if (!(spec.role == VACUUM && off(SWEEP_OVER_PASS)))
				n.sweeper = 0;
			p.pc = p.after_sweep;
			return push(out, n, i, "LockPage(1) released");
	}
}

inline void Model::flush(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	if (p.pc == F_BEGIN)
	{
		p.after_sweep = F_END;
		p.pc = sweep_entry(rules);
		push(out, n, i, "flush begins");
		finish(p);
		return push(out, n, i, "no flush is asked for");
	}
	p.round++;
	p.pc = F_BEGIN;
	if (p.round >= procs[i].rounds)
		finish(p);
	push(out, n, i, "flush ends");
}

/* ---------- VACUUM ---------- */

inline void Model::vacuum(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case V_BEGIN:
			p.dead = dead | s.aborted;
			p.after_sweep = off(HEAP_FIRST) ? V_HEAP : V_CYCLE;
			p.pc = off(NO_DRAIN) ? (u8) V_CYCLE : sweep_entry(rules);
			return push(out, n, i, "heap scanned, dead TIDs collected");
		case V_CYCLE:
			n.cycle = ++p.batch;
			p.nblocks = s.nblocks;
			p.scan_blk = 1;
			p.pc = V_LEAF;
			return push(out, n, i, "cycle id taken, relation length read");
		case V_LEAF:
		case V_BACK:
			return vacuum_leaf(s, i, out);
		case V_DONE:
			n.cycle = 0;
			if (off(SWEEP_OVER_PASS))
				n.sweeper = 0;
			n.removed |= p.dead;
			p.scan_blk = p.nblocks = p.dead = 0;
			p.pc = off(HEAP_FIRST) ? V_MAP : V_HEAP;
			return push(out, n, i, "leaf pass ends");
		case V_HEAP:
			n.heap_free = 1;
			p.pc = off(HEAP_FIRST) ? V_CYCLE : V_MAP;
			return push(out, n, i, "heap line pointers are reusable (WAL)");
		case V_MAP:
			for (u8 b = 1; b <= s.nblocks; b++)
				if (is_free(s, b))
					n.fsm |= 1 << b;
			finish(p);
			return push(out, n, i, "all free pages to the free space map; VACUUM ends");
	}
}

/* one page of the pass, in block order, or one that a split put behind it */
inline void Model::vacuum_leaf(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			blk = p.pc == V_BACK ? p.back_blk : p.scan_blk;
	Block	   &b = n.b[blk];

	for (auto &q : s.p)
		if (q.pin == blk)
			return;				/* waits for the cleanup lock */
	if (b.type == LEAF)
		b.slot[0] &= ~p.dead;
	p.back_blk = 0;
	if (b.type == LEAF && b.cycle == s.cycle && b.next && b.next < p.scan_blk && !off(NO_CYCLE))
	{
		p.back_blk = b.next;
		p.pc = V_BACK;
		return push(out, n, i, "leaf cleaned (WAL); split in this cycle into a block passed: goes there");
	}
	p.pc = V_LEAF;
	if (p.scan_blk++ >= p.nblocks)
	{
		if (s.nblocks > p.nblocks && !off(NO_LENGTH))
			p.nblocks = s.nblocks;
		else
			p.pc = V_DONE;
	}
	push(out, n, i, b.type == LEAF ? "leaf cleaned under its cleanup lock (WAL)" : "block is no leaf");
}

/* a session with a pinned leaf that then asks for a flush */
inline void Model::cursor(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			low;

	if (p.pc == C_PIN)
	{
		p.pin = leaf_for(s, 0, &low);
		p.after_sweep = C_CLOSE;
		p.pc = W_LOCK;
		return push(out, n, i, "cursor: leaf read, pin kept; asks for a flush");
	}
	finish(p);
	push(out, n, i, "cursor closed, pin gone");
}

/* ---------- scan ---------- */

inline void Model::read_meta(const State &n, Proc &p) const
{
	p.tail = n.tail;
	if (!n.tail_blk)
		p.copy_blk = p.copy_pos = 0;
	else if (!p.copy_blk || (p.copy_pos < n.tail && !off(TAIL_AFTER_HEAD)))
	{
		memset(p.copy, 0, sizeof p.copy);
		p.copy_pos = n.tail;
		p.copy_blk = n.tail_blk;
	}
}

/* the copy reaches the head: what of it this scan sees */
inline void Model::read_done(Proc &p, const Spec &spec) const
{
	p.upper = 0;
	for (u8 e = 0; e < NENT; e++)
		if (p.copy[e] && (p.copy[e] >= p.tail || off(COPY_UNFILTERED)))
			p.upper |= 1 << e;
	p.tail = 0;
	if (p.round + 1 >= spec.rounds)
	{
		memset(p.copy, 0, sizeof p.copy);
		p.copy_pos = p.copy_blk = 0;
	}
	p.pc = off(HEAD_BEFORE_SNAPSHOT) ? R_SNAP : off(TREE_FIRST) ? R_END : R_LEAF;
}

inline void Model::read(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case R_SNAP:
			p.snap = s.done | procs[i].ents;
			p.pc = off(HEAD_BEFORE_SNAPSHOT | TREE_FIRST) ? R_LEAF : off(TAIL_BEFORE_SNAPSHOT) ? R_PAGE : R_META;
			if (p.pc == R_PAGE && !p.copy_blk)
				read_done(p, procs[i]);
			return push(out, n, i, "snapshot taken");
		case R_META:
			read_meta(s, p);
			p.pc = off(TAIL_BEFORE_SNAPSHOT) ? R_SNAP : R_PAGE;
			if (p.pc == R_PAGE && !p.copy_blk)
				read_done(p, procs[i]);
			return push(out, n, i, "metapage: tail read");
		case R_PAGE:
			return read_page(s, i, out);
		case R_TAIL:
			p.tail = s.tail;
			read_done(p, procs[i]);
			return push(out, n, i, "metapage: tail read, after the head");
		case R_LEAF:
			return read_leaf(s, i, out);
		case R_END:
			return end_scan(s, i, out);
	}
}

/* the private copy grows by one page's entries */
inline void Model::read_page(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	const Block &b = s.b[p.copy_blk];
	u8			seq = seq_of(p.copy_pos), from = p.copy_pos % 4;
	bool		good = b.type == JOURNAL && (b.seq == seq || off(TYPE_ONLY));

	if (!good && !off(NO_RESTART))
	{
		p.copy_blk = 0;
		read_meta(s, p);
		return push(out, n, i, "page locked: not the one expected; starts again from the tail");
	}
	for (u8 k = from; good && k < b.n; k++)
		for (u8 set = b.slot[k]; set; set &= set - 1)
			p.copy[lowest(set)] = pos_of(seq, k);
	if (good && b.next)
	{
		p.copy_blk = b.next;
		p.copy_pos = pos_of(seq + 1, 0);
		return push(out, n, i, "journal page copied, goes on to the next");
	}
	if (good && b.n > from)
		p.copy_pos = pos_of(seq, b.n);
	if (off(TAIL_AFTER_HEAD))
		p.pc = R_TAIL;
	else
		read_done(p, procs[i]);
	push(out, n, i, "last journal page copied");
}

/* one key window: the leaf that covers the next key */
inline void Model::read_leaf(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			low, leaf = leaf_for(s, p.key, &low);

	if (!leaf)
		n.err = E_NOT_LEAF;
	else
	{
		p.out |= s.b[leaf].slot[0] & keys(p.key, s.b[leaf].high);
		p.key = s.b[leaf].high;
	}
	if (p.key == END_KEY)
		p.pc = off(TREE_FIRST) ? R_META : R_END;
	push(out, n, i, "leaf read");
}

inline void Model::end_scan(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	const Spec &spec = procs[i];
	u8			got = p.out | p.upper;

	if (p.snap & ~got)
		n.err = E_MISSED;
	if ((got & dead) && (p.snap & reuse))
		n.err = E_STALE;
	p.snap = p.out = p.upper = p.key = 0;
	p.pc = off(TAIL_BEFORE_SNAPSHOT | HEAD_BEFORE_SNAPSHOT) ? R_META : R_SNAP;
	if (++p.round >= spec.rounds)
	{
		n.done |= spec.ents;
		finish(p);
	}
	push(out, n, i, "scan ends");
}

/* ---------- errors, crashes, all steps ---------- */

inline void Model::error(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	const Spec &spec = procs[i];

	if (p.pc == first_pc(spec, rules) && !p.round)
		return;
	if (off(ERROR_TRUNCATES) && p.pc == A_LEAF && s.sweeper == i + 1)
		truncate(n, p);
	if (s.sweeper == i + 1 && !off(KEEP_LOCK_ON_ERROR))
		n.sweeper = 0;
	switch (spec.role)
	{
		case PUBLISHER:
			n.aborted |= spec.ents | spec.ents2;
			finish(p);
			break;
		case VACUUM:
			if (p.round || p.pc == V_MAP)
				return;
			{
				u8			cycles = p.batch;

				finish(p);
				n.cycle = 0;
				p.pc = V_BEGIN;
				p.batch = cycles;
				p.round = 1;
			}
			break;
		case READER:
			p.snap = p.out = p.upper = p.key = p.tail = 0;
			p.pc = first_pc(spec, rules);
			if (++p.round >= spec.rounds)
				finish(p);
			break;
		default:
			finish(p);
	}
	push(out, n, i, "ERROR here", true);
}

/* volatile state is lost; the free space map may then name anything */
inline void Model::crash(const State &s, Steps &out) const
{
	State		n = s;

	n.crashes++;
	n.sweeper = n.cycle = n.left_out = 0;
	for (u8 b = 1; b <= s.nblocks; b++)
		n.fsm |= 1 << b;
	for (size_t i = 0; i < procs.size(); i++)
	{
		Proc	   &p = n.p[i];
		const Spec &spec = procs[i];
		u8			cycles = p.batch, round = p.round;

		if (p.pc == DONE || (promote && (spec.flags & STANDBY)) || p.pc == P_BEGIN)
			continue;
		finish(p);
		if (spec.role == PUBLISHER || (spec.role == READER && spec.ents))
			n.aborted |= spec.ents | spec.ents2;
		else if (spec.role == VACUUM && s.heap_free)
			continue;
		else if (spec.role != CURSOR)
		{
			p.pc = first_pc(spec, rules);
			p.batch = spec.role == VACUUM ? cycles : 0;
			p.round = round;
		}
	}
	push(out, n, 99, promote ? "the standby is promoted here" : "WAL up to here is replayed", true);
}

inline void Model::step(const State &s, int i, Steps &out) const
{
	u8			pc = s.p[i].pc;

	if (pc <= P_COMMIT)
		publish(s, i, out);
	else if (pc <= A_TAKE)
		apply(s, i, out);
	else if (pc <= W_UNLOCK)
		sweep(s, i, out);
	else if (pc <= F_END)
		flush(s, i, out);
	else if (pc <= V_MAP)
		vacuum(s, i, out);
	else if (pc <= C_CLOSE)
		cursor(s, i, out);
	else
		read(s, i, out);
}

inline void Model::next(const State &s, Steps &out) const
{
	for (int i = 0; i < (int) procs.size(); i++)
	{
		if (s.p[i].pc == DONE || (s.half && !(procs[i].flags & STANDBY)))
			continue;
		step(s, i, out);
		if ((procs[i].flags & ERRS) && s.p[i].pc != P_COMMIT)
			error(s, i, out);
	}
	if (s.half)
		replay(s, out);
	else if (s.crashes < max_crashes && !ended(s))
		crash(s, out);
}
