/*
 * bucket_steps.hpp - the steps of publishers, flushers, VACUUM, scans and of
 * whoever attaches, drops, splits and merges.
 */
#pragma once
#include "buckets.hpp"

namespace bucket
{

enum Pc : u8
{
	DONE,
	P_LOOK, P_GEN, P_APPEND, P_FILL, P_COMMIT,
	A_LEAF,
	F_TAKE, F_UNLINK, F_DISOWN, F_WAIT,
	AT_LOCK, AT_GEN, AT_APPEND_LOCK, AT_LATE, AT_UNLOCK,
	T_HEAD, T_MIN, T_TAIL,
	D_LOCK, D_STATE, D_READ, D_TAIL, D_HEAD, D_BUCKET, D_CHECK, D_UNLOCK,
	V_BEGIN, V_PASS, V_DONE,
	X_DROP, X_SPLIT, X_MERGE,
	I_LOCK, I_UNLOCK,
	R_SNAP, R_DESC, R_TAIL, R_COPY, R_WINDOW, R_LEAF, R_END
};

inline void push(Steps &out, const State &n, int i, const char *what, bool fault = false)
{
	out.push_back({n, what, (u8) i, fault});
}

/* ---------- scripts ---------- */

/* the operation at p.op starts; nothing else of the process is kept */
inline void Model::begin(Proc &p, int i) const
{
	u8			op = p.op, batches = p.batches, round = p.round;

	memset(&p, 0, sizeof p);
	p.op = op;
	p.batches = batches;
	p.round = round;
	switch (procs[i].script[op])
	{
		case PUBLISH:
		case REUSE:
			p.batch = procs[i].ents[batches];
			p.pc = P_LOOK;
			break;
		case ATTACH: p.pc = off(ATTACH_NOLOCK) ? AT_GEN : AT_LOCK; break;
		case DROP: p.pc = X_DROP; break;
		case SPLIT: p.pc = X_SPLIT; break;
		case MERGE: p.pc = X_MERGE; break;
		case FLUSH: p.pc = F_TAKE; break;
		case TRUNCATE:
		case SWEEP:
		case DRAIN: p.pc = D_LOCK; break;
		case VACUUM: p.pc = V_BEGIN; break;
		case SCAN: p.pc = R_SNAP; break;
		case SORT: p.pc = I_LOCK; break;
		default:
			memset(&p, 0, sizeof p);
	}
}

inline void Model::finish(Proc &p, int i) const
{
	if (procs[i].script[p.op] == PUBLISH || procs[i].script[p.op] == REUSE)
		p.batches++;
	p.op++;
	p.round = 0;
	begin(p, i);
}

inline State Model::init() const
{
	State		s;

	memset(&s, 0, sizeof s);
	s.tail = s.head = 1;
	layout(s);
	for (size_t i = 0; i < procs.size(); i++)
		begin(s.p[i], (int) i);
	return s;
}

inline bool Model::ended(const State &s) const
{
	for (auto &p : s.p)
		if (p.pc != DONE)
			return false;
	return true;
}

/* ---------- parts of steps ---------- */

inline void Model::apply_then(Proc &p, u8 todo, u8 then) const
{
	p.todo = todo;
	p.pc = todo ? (u8) A_LEAF : then;
	p.after_apply = todo ? then : 0;
}

inline void Model::append(State &n, u8 set) const
{
	if (n.head >= NPOS)
		n.err = E_POSITIONS;
	else
		n.slot[n.head++] = set;
}

/* whoever takes the holders to 0 frees the chunk */
inline void Model::unhold(State &n, int c) const
{
	if (n.c[c].holders && --n.c[c].holders == 0)
		memset(&n.c[c], 0, sizeof(Chunk));
}

/* the owner lets go of what it owns */
inline void Model::disown(State &n, int i) const
{
	for (int c = 0; c < NCHUNK; c++)
		if (n.p[i].own >> c & 1)
		{
			n.c[c].owner = 0;
			if (off(FREE_ONCE) && n.c[c].holders > 1)
				n.c[c].holders = 99;
			unhold(n, c);
			if (off(FREE_PINNED) && !(linked(n) >> c & 1))
				memset(&n.c[c], 0, sizeof(Chunk));
		}
	n.p[i].own = 0;
}

inline void Model::cut_tail(State &n, u8 upto) const
{
	if (upto <= n.tail)
		return;
	if (journal(n, n.tail, upto) & ~n.tree & ~n.left_out)
		n.err = E_TRUNCATED;
	n.tail = upto;
}

/* ---------- publish ---------- */

inline void Model::publish(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case P_LOOK:
			if (procs[i].script[p.op] == REUSE && !s.heap_free)
				return;
			if (s.excl && !off(LOOK_UNLOCKED))
				return;
			p.gen = s.gen;
			p.id = s.d.attached ? s.d.id : 0;
			p.layout = s.d.layout;
			p.bkt = s.d.nbuckets;
			p.pc = off(GEN_SECOND) ? P_GEN : P_APPEND;
			return push(out, n, i, p.id ? "generation read, bucket set looked up: attached; batch routed" :
						"generation read, bucket set looked up: not attached");
		case P_GEN:
			p.gen = s.gen;
			p.pc = P_APPEND;
			return push(out, n, i, "generation read, after the bucket set");
		case P_APPEND:
			if (p.id)
				return publish_attached(s, i, out);
			if (append_lock_held(s))
				return;
			if (p.gen != s.gen && !off(NO_GEN))
			{
				p.pc = P_LOOK;
				return push(out, n, i, "append lock taken: another generation; looks again");
			}
			append(n, p.batch);
			p.gen = p.layout = p.bkt = 0;
			p.pc = P_COMMIT;
			return push(out, n, i, "append lock taken: appended to the journal only (WAL)");
		case P_FILL:
			return fill(s, i, out);
		case P_COMMIT:
			n.done |= p.batch;
			finish(p, i);
			return push(out, n, i, "commits");
	}
}

/* links the chunks that the batch needs, as routed; false if there is no room */
inline bool Model::find_room(State &n, u8 batch, int routed) const
{
	for (int b = 0; b < routed; b++)
	{
		u8			set = batch & keys(b ? FENCE_KEY : 0, b || routed == 1 ? END_KEY : FENCE_KEY);
		u8			need = (u8) __builtin_popcount(set), a = n.d.active[b];
		int			c = 0;

		if (!set || (a && n.c[a - 1].n + need <= NITEM))
			continue;
		while (c < chunks && n.c[c].holders)
			c++;
		if (c == chunks)
			return false;
		n.c[c].holders = 1;
		n.c[c].minpos = n.head;
		n.d.list[b] |= 1 << c;
		n.d.active[b] = (u8) (c + 1);
	}
	return true;
}

/* publish lock and append lock, both until the last fill; no lock of the bucket set */
inline void Model::publish_attached(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	if (s.publishing)
		return;
	if (!s.d.attached || s.d.id != p.id || (s.d.layout != p.layout && !off(NO_LAYOUT)))
	{
		p.pc = P_LOOK;
		p.id = p.gen = p.layout = p.bkt = 0;
		return push(out, n, i, "publish locked: the bucket set or its buckets have changed; looks again");
	}
	if (!find_room(n, p.batch, p.bkt))
		return no_room(s, i, out);
	append(n, p.batch);
	n.publishing = (u8) (i + 1);
	p.todo = p.batch;
	p.pc = P_FILL;
	push(out, n, i, "publish and append lock taken: appended (WAL)");
}

/* helps, where there is a chunk to flush, or goes to the tree */
inline void Model::no_room(const State &s, int i, Steps &out) const
{
	State		n = s;

	n.p[i].id = n.p[i].gen = n.p[i].layout = n.p[i].bkt = 0;
	apply_then(n.p[i], n.p[i].batch, P_COMMIT);
	push(out, n, i, "no room: straight to the tree");
	if (s.p[i].round)
		return;
	n = s;
	n.p[i].id = n.p[i].gen = n.p[i].layout = n.p[i].bkt = 0;
	n.p[i].round = 1;
	n.p[i].pc = F_TAKE;
	n.p[i].after_flush = P_LOOK;
	push(out, n, i, "no room: flushes first");
}

/* one bucket's entries; with the last the head moves and all is unlocked */
inline void Model::fill(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	int			b = p.bkt == 2 && !(p.todo & keys(0, FENCE_KEY));
	u8			mine = p.todo & (p.bkt == 2 && !b ? keys(0, FENCE_KEY) : keys(0, END_KEY));

	if (s.d.locked[b])
		return;
	p.todo &= ~mine;
	if (n.d.active[b])
	{
		Chunk	   &c = n.c[n.d.active[b] - 1];

		for (int k = 0; k < NKEY; k++)
			if (mine >> k & 1 && c.n < NITEM)
				c.item[c.n++] = (u8) (k + 1);
	}
	if (p.todo)
		return push(out, n, i, "entries copied into a bucket");
	n.d.head = n.head;
	n.publishing = 0;
	p.id = p.gen = p.layout = p.bkt = 0;
	p.pc = P_COMMIT;
	push(out, n, i, "entries copied into the bucket, head moved, all unlocked");
}

/* ---------- apply, flush ---------- */

inline void Model::apply(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			leaf = p.todo & keys(0, LEAF_KEY) ? keys(0, LEAF_KEY) : keys(LEAF_KEY, END_KEY);

	n.tree |= p.todo & leaf;
	p.todo &= ~leaf;
	if (!p.todo)
	{
		p.pc = p.after_apply;
		p.after_apply = 0;
	}
	push(out, n, i, "one leaf's entries applied (WAL)");
}

inline void Model::flush(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	size_t		had = out.size();

	switch (p.pc)
	{
		case F_TAKE:
			if ((s.excl && !off(SEAL_UNSHARED)) || (s.publishing && !off(SEAL_NOLOCK)))
				return;
			for (int b = 0; b < s.d.nbuckets; b++)
				take(s, i, b, out);
			if (out.size() > had)
				return;
			p.pc = p.after_flush;
			p.after_flush = 0;
			if (!p.pc)
				finish(p, i);
			return push(out, n, i, "nothing to flush");
		case F_UNLINK:
			return unlink(s, i, out);
		case F_DISOWN:
			disown(n, i);
			p.pc = p.after_flush;
			p.after_flush = 0;
			if (!p.pc)
				finish(p, i);
			return push(out, n, i, "owner given up");
		case F_WAIT:
			if (s.sweeper)
				return;
			p.pc = F_UNLINK;
			return push(out, n, i, "LockPage(1) taken and released, chunks owned");
	}
}

/* the bucket's chunks that nobody owns become ours, and are read */
inline void Model::take(const State &s, int i, int b, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			set;

	if (s.d.locked[b])
		return;
	for (int c = 0; c < NCHUNK; c++)
		if (s.d.list[b] >> c & 1 && (!s.c[c].owner || off(OWNER_BLIND)))
		{
			if (s.c[c].torn)
				n.err = E_TORN;
			p.own |= 1 << c;
			n.c[c].owner = (u8) (i + 1);
			n.c[c].holders++;
			if (n.d.active[b] == c + 1)
				n.d.active[b] = 0;
		}
	if (!p.own)
		return;
	set = items_of(n, p.own);
	n.left_out |= set & p.dead;
	p.bkt = 0;
	apply_then(p, set & ~p.dead, off(OWNER_WAITS) ? F_WAIT : F_UNLINK);
	if (off(UNLINK_FIRST))
		p.pc = F_UNLINK;
	push(out, n, i, b ? "bucket 1: chunks sealed, owned, sorted" : "bucket 0: chunks sealed, owned, sorted");
}

/* one bucket after the other under the bucket set's shared lock */
inline void Model::unlink(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			last = s.d.nbuckets == 2 && !off(UNLINK_ONE);

	if (s.excl || s.d.locked[p.bkt])
		return;
	for (int c = 0; c < NCHUNK; c++)
		if (p.own & s.d.list[p.bkt] & (1 << c))
		{
			n.d.list[p.bkt] &= ~(1 << c);
			unhold(n, c);
		}
	if (p.bkt < last)
	{
		p.bkt++;
		n.shared |= 1 << i;
		return push(out, n, i, "chunks unlinked from bucket 0");
	}
	n.shared &= ~(1 << i);
	p.bkt = 0;
	if (off(UNLINK_FIRST) && p.todo)
	{
		p.pc = A_LEAF;
		p.after_apply = F_DISOWN;
		return push(out, n, i, "chunks unlinked before they are applied");
	}
	disown(n, i);
	p.pc = p.after_flush;
	p.after_flush = 0;
	if (!p.pc)
		finish(p, i);
	push(out, n, i, "chunks unlinked, owner given up");
}

/* ---------- attach, truncate ---------- */

inline void Model::attach(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case AT_LOCK:
			if (s.sweeper)
			{
				finish(p, i);
				return push(out, n, i, "LockPage(1) not free: not attached");
			}
			n.sweeper = (u8) (i + 1);
			p.pc = AT_GEN;
			return push(out, n, i, "LockPage(1) taken, to attach");
		case AT_GEN:
			if (s.excl || s.shared || s.publishing)
				return;
			p.pc = AT_UNLOCK;
			if (s.d.attached)
				return push(out, n, i, "attached by another");
			n.excl = n.publishing = (u8) (i + 1);
			p.pc = AT_APPEND_LOCK;
			if (!off(GEN_LATE))
				n.gen++;
			return push(out, n, i, "publish and bucket set locked, generation bumped");
		case AT_APPEND_LOCK:
			n.d.attached = 1;
			n.d.id = ++n.ids;
			n.d.from = n.d.head = s.head;
			n.d.nbuckets = nbuckets;
			n.d.layout++;
			n.excl = n.publishing = off(GEN_LATE) ? n.excl : 0;
			p.pc = off(GEN_LATE) ? AT_LATE : AT_UNLOCK;
			return push(out, n, i, "append lock taken: from := head, attached; unlocked");
		case AT_LATE:
			n.gen++;
			n.excl = n.publishing = 0;
			p.pc = AT_UNLOCK;
			return push(out, n, i, "generation bumped after the append lock");
		case AT_UNLOCK:
			if (n.sweeper == i + 1)
				n.sweeper = 0;
			finish(p, i);
			return push(out, n, i, "LockPage(1) released");
	}
}

inline void Model::truncate(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case T_HEAD:
			if (s.excl || (s.publishing && !off(CUT_UNLOCKED)))
				return;
			p.pc = p.after_cut;
			if (!s.d.attached)
				return push(out, n, i, "not attached: nothing truncated");
			if (s.tail < s.d.from && !off(NO_FROM))
				return push(out, n, i, "tail < from: nothing truncated");
			p.bound = off(CUT_UNLOCKED) ? s.head : s.d.head;
			p.bkt = 0;
			p.pc = off(NO_MINPOS) ? T_TAIL : T_MIN;
			if (p.pc == T_MIN)
				n.shared |= 1 << i;
			return push(out, n, i, "publish locked: P := head");
		case T_MIN:
			if (s.d.locked[p.bkt])
				return;
			for (int c = 0; c < NCHUNK; c++)
				if (s.d.list[p.bkt] >> c & 1 && s.c[c].n && s.c[c].minpos < p.bound)
					p.bound = s.c[c].minpos;
			if (++p.bkt >= s.d.nbuckets)
			{
				n.shared &= ~(1 << i);
				p.pc = T_TAIL;
				p.bkt = 0;
			}
			return push(out, n, i, "bucket locked: P := min(P, minpos of its chunks)");
		case T_TAIL:
			cut_tail(n, p.bound);
			p.bound = 0;
			p.pc = p.after_cut;
			return push(out, n, i, "tail := P (WAL)");
	}
}

/* ---------- sweep, drain, VACUUM ---------- */

/* [tail, from) of an attached index, else [tail, head), under LockPage(1) */
inline void Model::sweep(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	char		op = procs[i].script[p.op];
	bool		waits = op == DRAIN || op == VACUUM;

	switch (p.pc)
	{
		case D_LOCK:
			if (s.sweeper && waits)
				return;
			if (s.sweeper)
			{
				finish(p, i);
				return push(out, n, i, "LockPage(1) not free: left to another");
			}
			n.sweeper = (u8) (i + 1);
			p.after_cut = waits ? D_CHECK : D_UNLOCK;
			p.pc = op == TRUNCATE ? T_HEAD : D_STATE;
			return push(out, n, i, "LockPage(1) taken");
		case D_STATE:
			if (s.excl)
				return;
			p.id = s.d.attached ? s.d.id : 0;
			p.bound = p.id && !off(SWEEP_TO_HEAD) ? s.d.from : 0;
			p.v = off(V_FIRST) && waits ? s.head : 0;
			p.pc = D_READ;
			return push(out, n, i, p.id ? "bucket set: attached, sweeps to from" : "bucket set: not attached, sweeps to the head");
		case D_READ:
			if (append_lock_held(s) && !p.bound)
				return;
			p.bound = p.bound ? p.bound : s.head;
			n.left_out |= journal(s, s.tail, p.bound) & p.dead;
			apply_then(p, journal(s, s.tail, p.bound) & ~p.dead, D_TAIL);
			return push(out, n, i, "entries from the tail read");
		case D_TAIL:
			cut_tail(n, p.bound);
			p.bound = 0;
			p.pc = p.id && waits ? D_HEAD : D_UNLOCK;
			return push(out, n, i, "tail moved behind what was swept (WAL)");
	}
}

inline void Model::drain(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case D_HEAD:
			if (s.excl || s.publishing)
				return;
			p.pc = D_BUCKET;
			if (!p.v)
				p.v = s.head;
			p.key = 0;
			return push(out, n, i, "publish locked: V := head");
		case D_BUCKET:
			return drain_bucket(s, i, out);
		case D_CHECK:
			p.pc = s.tail < p.v && !off(DRAIN_ONCE | DRAIN_NOWAIT) ? D_STATE : D_UNLOCK;
			p.v = 0;
			return push(out, n, i, p.pc == D_STATE ? "tail < V: again" : "all below V is in the tree");
		case D_UNLOCK:
			n.sweeper = 0;
			p.id = p.v = p.after_cut = 0;
			if (procs[i].script[p.op] == VACUUM)
				p.pc = V_PASS;
			else
				finish(p, i);
			return push(out, n, i, "LockPage(1) released");
	}
}

/* the bucket that covers the key has no chunk with minpos < V before the next one's turn */
inline void Model::drain_bucket(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	int			b = bucket_for(s, p.key);
	bool		old = false, owned = false;

	if (s.excl || s.d.locked[b])
		return;
	if (!s.d.attached || s.d.id != p.id)
	{
		p.pc = off(DRAIN_ONCE) ? D_UNLOCK : D_STATE;
		p.v = p.key = 0;
		return push(out, n, i, "the bucket set was dropped: again");
	}
	for (int c = 0; c < NCHUNK; c++)
		if (s.d.list[b] >> c & 1 && s.c[c].minpos < p.v)
			(s.c[c].owner ? owned : old) = true;
	if (old)
	{
		if (s.publishing && !off(SEAL_NOLOCK))
			return;
		p.after_flush = D_BUCKET;
		return take(n, i, b, out);
	}
	if (owned && !off(DRAIN_NOWAIT))
		return;					/* waits for the owners */
	p.key = high_of(s, b);
	if (p.key == END_KEY)
	{
		p.key = 0;
		p.pc = T_HEAD;
	}
	push(out, n, i, "bucket has nothing below V");
}

inline void Model::vacuum(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case V_BEGIN:
			p.dead = dead | s.aborted;
			p.pc = D_LOCK;
			return push(out, n, i, "heap scanned, dead TIDs collected");
		case V_PASS:
			n.tree &= ~(p.dead & (p.key ? keys(LEAF_KEY, END_KEY) : keys(0, LEAF_KEY)));
			if (p.key)
				p.pc = V_DONE;
			p.key = LEAF_KEY;
			return push(out, n, i, "a leaf cleaned (WAL)");
		case V_DONE:
			n.removed |= p.dead;
			n.heap_free = 1;
			finish(p, i);
			return push(out, n, i, "dead TIDs can be used again (WAL)");
	}
}

/* ---------- drop, split, merge: publish lock, bucket set exclusive ---------- */

inline void Model::drop(const State &s, int i, Steps &out) const
{
	State		n = s;

	if (s.shared || s.excl || s.publishing)
		return;
	finish(n.p[i], i);
	for (auto &c : s.c)
		if (s.d.attached && c.owner && !off(DROP_OWNED))
			return push(out, n, i, "a chunk has an owner: not dropped");
	for (int b = 0; b < s.d.nbuckets; b++)
		for (int c = 0; c < NCHUNK; c++)
			if (s.d.list[b] >> c & 1)
				unhold(n, c);
	memset(&n.d, 0, sizeof n.d);
	n.d.layout = s.d.layout;
	push(out, n, i, "bucket set dropped");
}

inline void Model::split(const State &s, int i, Steps &out) const
{
	State		n = s;

	if (s.shared || s.excl || s.publishing)
		return;
	finish(n.p[i], i);
	if (s.d.nbuckets != 1)
		return push(out, n, i, "nothing to split");
	n.d.nbuckets = 2;
	n.d.layout++;
	if (off(SPLIT_ONE))
		return n.d.active[0] = 0, push(out, n, i, "bucket split, chunks listed in the lower half");
	if (!off(SPLIT_ACTIVE))
		n.d.active[0] = 0;
	n.d.list[1] = n.d.list[0];
	for (int c = 0; c < NCHUNK; c++)
		if (n.d.list[1] >> c & 1)
			n.c[c].holders++;
	push(out, n, i, "bucket split, chunks listed in both halves");
}

inline void Model::merge(const State &s, int i, Steps &out) const
{
	State		n = s;

	if (s.shared || s.excl || s.publishing)
		return;
	finish(n.p[i], i);
	if (s.d.nbuckets != 2)
		return push(out, n, i, "nothing to merge");
	for (int c = 0; c < NCHUNK; c++)
		if (s.d.list[0] & s.d.list[1] & (1 << c))
			unhold(n, c);
	n.d.list[0] |= s.d.list[1];
	n.d.list[1] = n.d.active[0] = n.d.active[1] = 0;
	n.d.nbuckets = 1;
	n.d.layout++;
	push(out, n, i, "buckets merged");
}

/* ---------- a reader writes down the order it has found ---------- */

inline void Model::sort(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	if (p.pc == I_UNLOCK)
	{
		n.d.locked[p.bkt] = 0;
		n.shared &= ~(1 << i);
		n.excl = s.excl == i + 1 ? 0 : s.excl;
		for (int c = 0; c < NCHUNK; c++)
			if (p.own >> c & 1)
				n.c[c].torn = 0;
		finish(p, i);
		return push(out, n, i, "order written, bucket unlocked");
	}
	if (s.excl)
		return;
	for (int b = 0; b < s.d.nbuckets; b++)
		for (int c = 0; c < NCHUNK; c++)
		{
			int			lists = (s.d.list[0] >> c & 1) + (s.d.list[1] >> c & 1);

			if (!(s.d.list[b] >> c & 1) || s.d.locked[b] || !s.c[c].n)
				continue;
			if ((lists > 1 && s.shared && !off(SORT_LISTED)) || (s.c[c].holders > lists && !off(SORT_PINNED)))
				continue;
			n = s;
			n.d.locked[b] = (u8) (i + 1);
			if (lists > 1 && !off(SORT_LISTED))
				n.excl = (u8) (i + 1);
			else
				n.shared |= 1 << i;
			n.c[c].torn = 1;
			p.own = (u8) (1 << c);
			p.bkt = (u8) b;
			p.pc = I_UNLOCK;
			push(out, n, i, "bucket locked, a chunk that nobody else holds: its order is being written");
		}
	n = s;
	finish(p, i);
	push(out, n, i, "nothing sorted");
}

/* ---------- scan ---------- */

inline void Model::scan(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	switch (p.pc)
	{
		case R_SNAP:
			p.snap = s.done;
			p.pc = off(TAIL_FIRST) ? R_TAIL : R_DESC;
			return push(out, n, i, "snapshot taken");
		case R_DESC:
			if (s.excl)
				return;
			p.id = s.d.attached ? s.d.id : 0;
			p.bound = p.id ? s.d.from : 0;
			p.pc = off(TAIL_FIRST) ? R_COPY : R_TAIL;
			return push(out, n, i, p.id ? "bucket set: attached" : "bucket set: not attached");
		case R_TAIL:
			p.tail = s.tail;
			p.pc = off(TAIL_FIRST) ? R_DESC : R_COPY;
			return push(out, n, i, "metapage: tail read");
		case R_COPY:
			p.upper = journal(s, p.tail, p.id ? p.bound : s.head);
			p.bound = 0;
			p.tail = off(TAIL_FIRST) ? p.tail : 0;
			p.pc = off(TREE_FIRST) ? R_LEAF : R_WINDOW;
			return push(out, n, i, p.id ? "private copy of [tail, from)" : "private copy of [tail, head)");
		case R_WINDOW:
			return window(s, i, out);
		case R_LEAF:
			p.leaf = s.tree & keys(p.key, p.key < LEAF_KEY ? LEAF_KEY : END_KEY);
			if (off(TREE_FIRST))
				p.pc = R_WINDOW;
			else
				return emit(n, i, out);
			return push(out, n, i, "leaf read");
		case R_END:
			return end_scan(s, i, out);
	}
}

/* the bucket that covers the key: its chunks pinned, their items counted */
inline void Model::window(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	int			b = bucket_for(s, p.key);

	if (s.excl || s.d.locked[b])
		return;
	if ((s.d.attached ? s.d.id : 0) != p.id && !off(NO_REMAKE))
	{
		p.pc = off(TAIL_FIRST) ? R_COPY : R_DESC;
		if (off(TAIL_FIRST))
		{
			p.id = s.d.attached ? s.d.id : 0;
			p.bound = p.id ? s.d.from : 0;
		}
		p.leaf = 0;
		return push(out, n, i, "bucket locked: another attachment; makes its copy again");
	}
	p.pins = s.d.attached ? s.d.list[b] : 0;
	p.bkt = high_of(s, b);
	for (int c = 0; c < NCHUNK; c++)
		if (p.pins >> c & 1)
		{
			p.count[c] = s.c[c].n;
			n.c[c].holders++;
		}
	p.pc = R_LEAF;
	if (off(TREE_FIRST))
		return emit(n, i, out);
	push(out, n, i, s.d.attached ? "bucket locked: chunks pinned, items counted" : "not attached: no bucket");
}

/* leaf, pinned chunks and private copy, merged over the key window; n has the leaf still to read */
inline void Model::emit(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	u8			high = p.key < LEAF_KEY ? LEAF_KEY : END_KEY, got = p.upper | p.leaf;

	if (p.bkt < high && !off(NO_CUT))
		high = p.bkt;
	for (int c = 0; c < NCHUNK; c++)
	{
		if (!(p.pins >> c & 1))
			continue;
		for (int k = 0; k < p.count[c]; k++)
			if (s.c[c].item[k])
				got |= 1 << (s.c[c].item[k] - 1);
			else
				n.err = E_GARBAGE;
		if (s.c[c].torn)
			n.err = E_TORN;
		p.count[c] = 0;
		unhold(n, c);
	}
	got &= keys(p.key, high);
	if (got & p.out)
		n.err = E_TWICE;
	p.out |= got;
	p.pins = p.bkt = p.leaf = 0;
	p.key = high;
	p.pc = high == END_KEY ? R_END : off(TREE_FIRST) ? R_LEAF : R_WINDOW;
	push(out, n, i, "leaf read, window merged, pins released");
}

inline void Model::end_scan(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];

	if (p.snap & ~p.out)
		n.err = E_MISSED;
	if ((p.out & dead) && (p.snap & reuse))
		n.err = E_STALE;
	finish(p, i);
	push(out, n, i, "scan ends");
}

/* ---------- errors, crashes, all steps ---------- */

/* the slot of the process is cleaned up: what it owns, pins and has locked */
inline void Model::error(const State &s, int i, Steps &out) const
{
	State		n = s;
	Proc	   &p = n.p[i];
	char		op = procs[i].script[p.op];

	if ((s.shared >> i & 1) || s.excl == i + 1 || s.publishing == i + 1 || p.pc == P_LOOK || p.round > 1)
		return;
	if (!off(KEEP_OWNER))
		disown(n, i);
	for (int c = 0; c < NCHUNK; c++)
		if (p.pins >> c & 1)
			unhold(n, c);
	if (s.sweeper == i + 1)
		n.sweeper = 0;
	if (op == PUBLISH || op == REUSE)
		n.aborted |= p.batch;
	p.round = 2;
	if (op == VACUUM)
		begin(p, i);
	else
		finish(p, i);
	push(out, n, i, "ERROR here, slot cleaned up", true);
}

/* shared memory is gone; journal and tree stay */
inline void Model::crash(const State &s, Steps &out) const
{
	State		n = s;

	n.crashes++;
	memset(n.c, 0, sizeof n.c);
	memset(&n.d, 0, sizeof n.d);
	n.gen = n.ids = n.shared = n.excl = n.publishing = n.sweeper = 0;
	for (size_t i = 0; i < procs.size(); i++)
	{
		char		op = procs[i].script[s.p[i].op];

		if (s.p[i].pc == DONE || s.p[i].pc == P_LOOK)
			continue;
		if (op == PUBLISH || op == REUSE)
		{
			n.aborted |= s.p[i].batch;
			finish(n.p[i], (int) i);
		}
		else
			begin(n.p[i], (int) i);
	}
	push(out, n, NPROC, "all of shared memory is lost, WAL up to here is replayed", true);
}

inline void Model::step(const State &s, int i, Steps &out) const
{
	u8			pc = s.p[i].pc;

	if (pc <= P_COMMIT)
		publish(s, i, out);
	else if (pc == A_LEAF)
		apply(s, i, out);
	else if (pc <= F_WAIT)
		flush(s, i, out);
	else if (pc <= AT_UNLOCK)
		attach(s, i, out);
	else if (pc <= T_TAIL)
		truncate(s, i, out);
	else if (pc <= D_TAIL)
		sweep(s, i, out);
	else if (pc <= D_UNLOCK)
		drain(s, i, out);
	else if (pc <= V_DONE)
		vacuum(s, i, out);
	else if (pc == X_DROP)
		drop(s, i, out);
	else if (pc == X_SPLIT)
		split(s, i, out);
	else if (pc == X_MERGE)
		merge(s, i, out);
	else if (pc <= I_UNLOCK)
		sort(s, i, out);
	else
		scan(s, i, out);
}

inline void Model::next(const State &s, Steps &out) const
{
	for (int i = 0; i < (int) procs.size(); i++)
	{
		if (s.p[i].pc == DONE)
			continue;
		step(s, i, out);
		if (procs[i].errs)
			error(s, i, out);
	}
	if (s.crashes < max_crashes && !ended(s))
		crash(s, out);
}

}								/* namespace bucket */
