/*
 * state.hpp - one state of the protocols without buckets, and what must hold.
 *
 * Entries are bits; bit k has key k.  A "dead" entry is dead to everyone when
 * VACUUM starts; the "reuse" entry is a later tuple at the dead one's TID with
 * another key.  Pages are blocks 1 ... of one pool: free, leaf or journal.
 * A journal position is sequence number * 4 + slot; a batch takes one slot.
 *
 * One step is what is done under one exclusive lock, and at most one WAL
 * record: so each state is also a WAL prefix, and what a standby has replayed.
 */
#pragma once
#include "explore.hpp"
#include <cstdio>

enum { NBLK = 8, NPROC = 5, NENT = 6, NSLOT = 2, END_KEY = NENT };

enum PageType : u8 { ZERO, LEAF, JOURNAL };

struct Block
{
	u8			type, next;
	u8			seq, n;			/* journal: sequence number, slots in use */
	u8			slot[NSLOT];	/* journal: batches; leaf: [0] its entries */
	u8			high;			/* leaf: high key */
	u8			cycle;			/* leaf: split while VACUUM's pass ran */
};

struct Proc
{
	u8			pc, after_apply, after_sweep;
	u8			batch;			/* publisher: which batch */
	u8			blk, seq;		/* publisher: last journal page, as believed */
	u8			fresh;			/* a page taken to become another */
	u8			todo;			/* entries still to apply; pages to free */
	u8			dead;			/* VACUUM: TIDs the callback calls dead */
	u8			from, upto, upto_blk;	/* sweep: old tail and V */
	u8			scan_blk, back_blk, nblocks;	/* VACUUM's leaf pass */
	u8			pin;			/* cursor: pinned leaf */
	u8			snap, out, upper;	/* scan: snapshot, answer, journal entries */
	u8			tail, key, round;	/* scan: tail read, next key, which scan */
	u8			copy_pos, copy_blk; /* private copy: up to here ... */
	u8			copy[NENT];		/* ... entries' positions, 0: not in it */
};

struct State
{
	Block		b[NBLK];		/* durable, but for b[0], unused */
	u8			tail, tail_blk; /* metapage; tail_blk 0: no journal page yet */
	u8			nblocks;		/* relation length */
	u8			fsm;			/* free space map: blocks it names */
	u8			sweeper;		/* who holds LockPage(index, 1), + 1 */
	u8			cycle;			/* VACUUM's leaf pass is active */
	u8			done, aborted, removed, heap_free;
	u8			left_out;		/* dead entries that a drain did not apply */
	u8			crashes, err;
	u8			half, half_set, half_high, half_next;	/* broken redo of a split */
	Proc		p[NPROC];
};

enum Role : u8 { PUBLISHER, FLUSHER, VACUUM, READER, CURSOR };

enum Flag : u8
{
	ERRS = 1,					/* may fail wherever it holds no LWLock */
	DIRECT = 2,					/* dense batch: straight to the tree */
	SWEEPS = 4,					/* may find the journal past its limit */
	WAITS = 8,					/* flush waits for another sweep */
	STANDBY = 16,				/* reads what a standby has replayed */
	REUSES = 32,				/* its tuple takes the dead one's TID */
	KEEPS_DEAD = 64				/* VACUUM's drain applies dead entries too */
};

struct Spec
{
	Role		role;
	const char *name;
	u8			flags = 0;
	u8			ents = 0, ents2 = 0;	/* one or two batches */
	u8			rounds = 1;		/* sweeps of a flusher, scans of a reader */
};

/* rules that can be broken, one at a time */
enum Rule : u32
{
	TRUNCATE_FIRST = 1, DRAIN_NOWAIT = 2, NO_DRAIN = 4, BATCH_BEFORE_LOCK = 8,
	V_BEFORE_LOCK = 16, HEAD_BEFORE_SNAPSHOT = 32, TREE_FIRST = 64,
	COPY_UNFILTERED = 128, TAIL_BEFORE_SNAPSHOT = 256, TYPE_ONLY = 512,
	NO_RECHECK = 1024, NO_CYCLE = 2048, TAIL_AFTER_HEAD = 4096,
	REDO_LEFT_FIRST = 8192, SWEEP_OVER_PASS = 1 << 14, NO_LENGTH = 1 << 15,
	NO_RESTART = 1 << 16, COMMIT_FIRST = 1 << 17, KEEP_LOCK_ON_ERROR = 1 << 18,
	ERROR_TRUNCATES = 1 << 19, APPEND_TYPE_ONLY = 1 << 20, HEAP_FIRST = 1 << 21,
	FREE_NO_TAIL = 1 << 22
};

enum Err : u8
{
	OK, E_MISSED, E_STALE, E_NOT_LEAF, E_TRUNCATED, E_TWO_THINGS,
	E_NO_BLOCKS
};

typedef std::vector<Step<State>> Steps;

struct Model
{
	typedef ::State State;

	std::vector<Spec> procs;
	void		(*layout) (State &) = nullptr;
	u32			rules = 0;		/* the broken one, if any */
	u8			dead = 0, reuse = 0;	/* entries at the reused TID */
	u8			slots = 1, leaf_room = 4;
	u8			max_crashes = 0, root = 1;
	bool		promote = false;	/* the crash is the primary's: readers go on */
	bool		any_free = false;	/* the map may give any page it names */

	State		init() const;
	void		next(const State &s, Steps &out) const;
	const char *broken(const State &s) const;
	bool		ended(const State &s) const;
	const char *leaked(const State &s) const;
	const char *who(int i) const;
	std::string show(const State &s) const;

	/* reading a state */
	bool		off(u32 rule) const { return (rules & rule) != 0; }
	u8			head(const State &s, u8 *blk) const;
	u8			journal_from(const State &s, u8 pos) const;
	u8			leaf_for(const State &s, u8 key, u8 *low) const;
	u8			tree(const State &s) const;
	bool		is_free(const State &s, u8 blk) const;
	const char *chains(const State &s) const;

	/* steps, by process */
	void		error(const State &s, int i, Steps &out) const;
	void		crash(const State &s, Steps &out) const;
	void		publish(const State &s, int i, Steps &out) const;
	void		append(const State &s, int i, Steps &out) const;
	void		append_first(const State &s, int i, Steps &out) const;
	void		take_page(const State &s, int i, u8 then, Steps &out) const;
	void		apply(const State &s, int i, Steps &out) const;
	void		split(State &n, Proc &p, u8 leaf, u8 set) const;
	void		sweep(const State &s, int i, Steps &out) const;
	void		sweep_read(State &n, Proc &p, u8 leave_out, bool v_known) const;
	void		truncate(State &n, Proc &p) const;
	void		flush(const State &s, int i, Steps &out) const;
	void		vacuum(const State &s, int i, Steps &out) const;
	void		vacuum_leaf(const State &s, int i, Steps &out) const;
	void		replay(const State &s, Steps &out) const;
	void		step(const State &s, int i, Steps &out) const;
	void		start_batch(Proc &p, const Spec &spec) const;
	void		cursor(const State &s, int i, Steps &out) const;
	void		read(const State &s, int i, Steps &out) const;
	void		read_meta(const State &n, Proc &p) const;
	void		read_page(const State &s, int i, Steps &out) const;
	void		read_done(Proc &p, const Spec &spec) const;
	void		read_leaf(const State &s, int i, Steps &out) const;
	void		end_scan(const State &s, int i, Steps &out) const;
};

/* ---------- reading a state ---------- */

inline u8 pos_of(u8 seq, u8 slot) { return (u8) (seq * 4 + slot); }
inline u8 seq_of(u8 pos) { return pos / 4; }
inline u8 keys(u8 low, u8 high) { return (u8) (((1 << high) - 1) & ~((1 << low) - 1)); }
inline u8 lowest(u8 set) { return (u8) __builtin_ctz(set); }

/* the end of the journal, and its block */
inline u8 Model::head(const State &s, u8 *blk) const
{
	u8			b = s.tail_blk;

	if (!b)
		return *blk = 0, s.tail;
	for (int guard = 0; s.b[b].next && guard < NBLK; guard++)
		b = s.b[b].next;
	*blk = b;
	return pos_of(s.b[b].seq, s.b[b].n);
}

/* entries in [pos, head) */
inline u8 Model::journal_from(const State &s, u8 pos) const
{
	u8			set = 0, b = s.tail_blk;

	for (int guard = 0; b && guard < NBLK; b = s.b[b].next, guard++)
		for (u8 i = 0; i < s.b[b].n; i++)
			if (pos_of(s.b[b].seq, i) >= pos)
				set |= s.b[b].slot[i];
	return set;
}

/* the leaf that covers the key, by right links; 0 if a link leads elsewhere */
inline u8 Model::leaf_for(const State &s, u8 key, u8 *low) const
{
	u8			b = root;

	*low = 0;
	for (int guard = 0; guard < NBLK; guard++)
	{
		if (!b || s.b[b].type != LEAF)
			return 0;
		if (key < s.b[b].high)
			return b;
		*low = s.b[b].high;
		b = s.b[b].next;
	}
	return 0;
}

inline u8 Model::tree(const State &s) const
{
	u8			set = 0, b = root;

	for (int guard = 0; b && guard < NBLK; b = s.b[b].next, guard++)
		set |= s.b[b].slot[0];
	return set;
}

/* free by its content: zero, or a journal page below the tail */
inline bool Model::is_free(const State &s, u8 blk) const
{
	const Block &b = s.b[blk];

	return b.type == ZERO ||
		(b.type == JOURNAL && (off(FREE_NO_TAIL) ? b.seq <= seq_of(s.tail) : b.seq < seq_of(s.tail)));
}

/* ---------- what must hold ---------- */

inline const char *Model::chains(const State &s) const
{
	u8			b = root, want = seq_of(s.tail);
	int			guard = 0;

	for (; b; b = s.b[b].next)
		if (s.b[b].type != LEAF || ++guard > NBLK)
			return "P5 a page in use was initialised as two things: a leaf's right link leads to no leaf";
	guard = 0;
	for (b = s.tail_blk; b; b = s.b[b].next)
		if (s.b[b].type != JOURNAL || s.b[b].seq != want++ || ++guard > NBLK)
			return "P5 a page in use was initialised as two things: the journal's chain is broken";
	return nullptr;
}

inline const char *Model::broken(const State &s) const
{
	switch (s.err)
	{
		case E_MISSED: return "P1 a scan missed an entry of its snapshot";
		case E_STALE: return "P1 a scan returned an entry whose TID was reused";
		case E_NOT_LEAF: return "P1 a scan came to a page that is no leaf";
		case E_TRUNCATED: return "P5 truncation passed an entry that the tree lacks";
		case E_TWO_THINGS: return "P5 a page in use was initialised as something else";
		case E_NO_BLOCKS: return "the model has too few blocks";
	}
	if (s.half)
		return nullptr;
	if (const char *what = chains(s))
		return what;
	u8			journal = journal_from(s, s.tail), leaves = tree(s);

	if (s.done & ~(leaves | journal))
		return "P1 a committed entry is neither in the tree nor in the journal";
	if (s.removed & leaves)
		return "P2 a TID that VACUUM removed is in the tree again or still";
	if (s.removed & journal)
		return "P2 a TID that VACUUM removed is in the live journal";
	return nullptr;
}

inline const char *Model::leaked(const State &s) const
{
	u8			used = 0, blk = root;

	if (s.sweeper || s.cycle)
		return "P4 LockPage(index, 1) or VACUUM's cycle is left at the end";
	for (; blk; blk = s.b[blk].next)
		used |= 1 << blk;
	for (blk = s.tail_blk; blk; blk = s.b[blk].next)
		used |= 1 << blk;
	for (blk = 1; blk <= s.nblocks; blk++)
		if (!(used >> blk & 1) && !is_free(s, blk))
			return "P4 a page is leaked: in no chain and not free";
	return nullptr;
}

inline const char *Model::who(int i) const
{
	return i < (int) procs.size() ? procs[i].name : i == 98 ? "REPLAY" : "CRASH";
}

inline std::string Model::show(const State &s) const
{
	char		t[160];
	std::string r;

	snprintf(t, sizeof t, "tail %d.%d at block %d, map %x, tree %x, live journal %x, committed %x, aborted %x, removed %x;",
			 s.tail / 4, s.tail % 4, s.tail_blk, s.fsm, tree(s), journal_from(s, s.tail), s.done, s.aborted, s.removed);
	r = t;
	for (u8 i = 1; i <= s.nblocks; i++)
	{
		const Block &b = s.b[i];

		if (b.type == JOURNAL)
			snprintf(t, sizeof t, " [%d journal %d: %x %x next %d]", i, b.seq, b.slot[0], b.slot[1], b.next);
		else
			snprintf(t, sizeof t, b.type == LEAF ? " [%d leaf %x < %d next %d]" : " [%d zero]", i, b.slot[0], b.high, b.next);
		r += t;
	}
	return r;
}
