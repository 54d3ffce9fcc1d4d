/*
 * buckets.hpp - one state of the protocols with buckets, and what must hold.
 *
 * A third model: one index with a bucket set, at most two buckets and a pool
 * of four chunks.  Entries are bits, bit k has key k.  The journal is a row of
 * positions, a batch takes one; its pages are state.hpp's business.  The tree
 * is two leaves that never split.
 *
 * A process runs a script, one letter an operation (see Op).  One step is what
 * is done under one exclusive lock, or one WAL record; locks that are held over
 * several steps are in the state: the bucket set's lock (shared by a set, or
 * exclusive), the publish lock, a bucket's lock, and LockPage(index, 1).  Who
 * holds the publish lock holds the append lock as well, unless he attaches: he has the
 * bucket set's lock until he takes it.
 */
#pragma once
#include "explore.hpp"
#include <cstdio>

namespace bucket
{

enum { NCHUNK = 4, NITEM = 2, NPOS = 8, NPROC = 5, NKEY = 6, END_KEY = NKEY, LEAF_KEY = 2, FENCE_KEY = 3 };

struct Chunk
{
	u8			n, minpos, owner;	/* owner: process + 1 */
	u8			holders;		/* lists + pins + owner; 0: free */
	u8			torn;			/* its order is being written */
	u8			item[NITEM];	/* key + 1 */
};

struct Desc
{
	u8			attached, id, from, head;
	u8			layout, nbuckets;
	u8			list[2], active[2]; /* chunks, chunk + 1 */
	u8			locked[2];		/* bucket lock held exclusively by, + 1 */
};

struct Proc
{
	u8			op, pc, round, batches;
	u8			after_apply, after_flush, after_cut;
	u8			batch, todo, own, pins;
	u8			id, gen, layout, bound;		/* bucket set as it was looked up */
	u8			v, bkt, key, dead;
	u8			snap, out, upper, leaf, tail;
	u8			count[NCHUNK];	/* scan: items of the pinned chunks */
};

struct State
{
	u8			slot[NPOS];		/* journal; durable, like the next two lines */
	u8			tail, head, tree;
	u8			done, aborted, removed, heap_free;
	u8			left_out;		/* dead entries that a drain did not apply */
	Chunk		c[NCHUNK];
	Desc		d;
	u8			gen, ids;		/* what an attach bumps; the last id given */
	u8			shared, excl;	/* bucket set's lock: a set; process + 1 */
	u8			publishing;		/* publish lock held by, + 1 */
	u8			sweeper;		/* LockPage(index, 1) held by, + 1 */
	u8			crashes, err;
	Proc		p[NPROC];
};

/* letters of a script */
enum Op : char
{
	PUBLISH = 'p', REUSE = 'n', ATTACH = 'a', DROP = 'd', SPLIT = 's', MERGE = 'm',
	FLUSH = 'f', TRUNCATE = 't', SWEEP = 'w', DRAIN = 'g', VACUUM = 'v', SCAN = 'r',
	SORT = 'i'
};

struct Spec
{
	const char *name, *script;
	bool		errs = false;	/* may fail wherever it holds no LWLock */
	u8			ents[3] = {};	/* its batches */
};

/* rules that can be broken, one at a time */
enum Rule : u32
{
	NO_MINPOS = 1, NO_FROM = 2, UNLINK_FIRST = 4, ATTACH_NOLOCK = 8,
	NO_GEN = 16, GEN_LATE = 32, LOOK_UNLOCKED = 64, TREE_FIRST = 128,
	NO_REMAKE = 256, DROP_OWNED = 512, SEAL_NOLOCK = 1024, SPLIT_ONE = 2048,
	DRAIN_NOWAIT = 4096, FREE_PINNED = 8192, SPLIT_ACTIVE = 1 << 14,
	NO_LAYOUT = 1 << 15, CUT_UNLOCKED = 1 << 16, SORT_PINNED = 1 << 17,
	SORT_LISTED = 1 << 18, FREE_ONCE = 1 << 19, KEEP_OWNER = 1 << 20,
	NO_CUT = 1 << 21, DRAIN_ONCE = 1 << 22, SWEEP_TO_HEAD = 1 << 23,
	OWNER_WAITS = 1 << 24, OWNER_BLIND = 1 << 25, V_FIRST = 1 << 26,
	TAIL_FIRST = 1 << 27, UNLINK_ONE = 1 << 28, GEN_SECOND = 1 << 29,
	SEAL_UNSHARED = 1 << 30
};

enum Err : u8 { OK, E_MISSED, E_STALE, E_TWICE, E_GARBAGE, E_TORN, E_TRUNCATED, E_POSITIONS };

typedef std::vector<Step<State>> Steps;

struct Model
{
	typedef bucket::State State;

	std::vector<Spec> procs;
	void		(*layout) (State &) = nullptr;
	u32			rules = 0;		/* the broken one, if any */
	u8			dead = 0, reuse = 0;	/* entries at the reused TID */
	u8			nbuckets = 1;	/* that an attach makes */
	u8			chunks = NCHUNK;
	u8			max_crashes = 0;

	State		init() const;
	void		next(const State &s, Steps &out) const;
	const char *broken(const State &s) const;
	bool		ended(const State &s) const;
	const char *leaked(const State &s) const;
	const char *who(int i) const;
	std::string show(const State &s) const;

	/* reading a state */
	bool		off(u32 rule) const { return (rules & rule) != 0; }

	/* steps, by process */
	void		begin(Proc &p, int i) const;
	void		finish(Proc &p, int i) const;
	void		apply_then(Proc &p, u8 todo, u8 then) const;
	void		append(State &n, u8 set) const;
	void		unhold(State &n, int c) const;
	void		disown(State &n, int i) const;
	void		cut_tail(State &n, u8 upto) const;
	bool		find_room(State &n, u8 batch, int routed) const;
	void		publish(const State &s, int i, Steps &out) const;
	void		publish_attached(const State &s, int i, Steps &out) const;
	void		no_room(const State &s, int i, Steps &out) const;
	void		fill(const State &s, int i, Steps &out) const;
	void		apply(const State &s, int i, Steps &out) const;
	void		flush(const State &s, int i, Steps &out) const;
	void		take(const State &s, int i, int b, Steps &out) const;
	void		unlink(const State &s, int i, Steps &out) const;
	void		attach(const State &s, int i, Steps &out) const;
	void		truncate(const State &s, int i, Steps &out) const;
	void		sweep(const State &s, int i, Steps &out) const;
	void		drain(const State &s, int i, Steps &out) const;
	void		drain_bucket(const State &s, int i, Steps &out) const;
	void		vacuum(const State &s, int i, Steps &out) const;
	void		drop(const State &s, int i, Steps &out) const;
	void		split(const State &s, int i, Steps &out) const;
	void		merge(const State &s, int i, Steps &out) const;
	void		sort(const State &s, int i, Steps &out) const;
	void		scan(const State &s, int i, Steps &out) const;
	void		window(const State &s, int i, Steps &out) const;
	void		emit(const State &s, int i, Steps &out) const;
	void		end_scan(const State &s, int i, Steps &out) const;
	void		step(const State &s, int i, Steps &out) const;
	void		error(const State &s, int i, Steps &out) const;
	void		crash(const State &s, Steps &out) const;
};

/* ---------- reading a state ---------- */

inline u8 keys(u8 low, u8 high) { return (u8) (((1 << high) - 1) & ~((1 << low) - 1)); }

/* entries at positions [from, upto) */
inline u8 journal(const State &s, u8 from, u8 upto)
{
	u8			set = 0;

	for (u8 p = from; p < upto; p++)
		set |= s.slot[p];
	return set;
}

inline u8 items(const Chunk &c)
{
	u8			set = 0;

	for (int k = 0; k < c.n; k++)
		if (c.item[k])
			set |= 1 << (c.item[k] - 1);
	return set;
}

inline u8 items_of(const State &s, u8 chunks)
{
	u8			set = 0;

	for (int c = 0; c < NCHUNK; c++)
		if (chunks >> c & 1)
			set |= items(s.c[c]);
	return set;
}

inline int bucket_for(const State &s, u8 key) { return s.d.nbuckets == 2 && key >= FENCE_KEY; }
inline u8 low_of(const State &s, int b) { return s.d.nbuckets == 2 && b ? (u8) FENCE_KEY : 0; }
inline u8 high_of(const State &s, int b) { return s.d.nbuckets == 2 && !b ? (u8) FENCE_KEY : (u8) END_KEY; }
inline bool append_lock_held(const State &s) { return s.publishing && s.publishing != s.excl; }
inline u8 linked(const State &s) { return s.d.list[0] | s.d.list[1]; }

/* ---------- what must hold ---------- */

inline const char *Model::broken(const State &s) const
{
	switch (s.err)
	{
		case E_MISSED: return "P1 a scan missed an entry of its snapshot";
		case E_STALE: return "P1 a scan returned an entry whose TID was reused";
		case E_TWICE: return "P1 a scan returned an entry twice";
		case E_GARBAGE: return "P6 a chunk was freed under one who reads it";
		case E_TORN: return "P6 a chunk was read while its order was written";
		case E_TRUNCATED: return "P5 truncation passed an entry that the tree lacks";
		case E_POSITIONS: return "the model has too few positions";
	}
	u8			found = s.tree | journal(s, s.tail, s.d.attached ? s.d.from : s.head);

	if (s.removed & (s.tree | journal(s, s.tail, s.head) | items_of(s, linked(s))))
		return "P2 a TID that VACUUM removed is in the tree, the journal or a bucket again or still";
	for (int b = 0; b < s.d.nbuckets; b++)
		found |= items_of(s, s.d.list[b]) & keys(low_of(s, b), high_of(s, b));
	if (s.done & ~found)
		return "P1 a committed entry is where no scan looks for it";
	return nullptr;
}

inline const char *Model::leaked(const State &s) const
{
	if (s.sweeper || s.shared || s.excl || s.publishing || s.d.locked[0] || s.d.locked[1])
		return "P4 a lock is held at the end";
	for (int c = 0; c < NCHUNK; c++)
	{
		int			lists = (s.d.list[0] >> c & 1) + (s.d.list[1] >> c & 1);

		if (s.c[c].owner || s.c[c].holders != lists)
			return "P4 a chunk that no bucket lists is not free at the end";
		if (!lists && (s.c[c].n || s.c[c].minpos))
			return "P4 a chunk is free and not empty";
	}
	return nullptr;
}

inline const char *Model::who(int i) const
{
	return i < (int) procs.size() ? procs[i].name : "CRASH";
}

inline std::string names(u8 set)
{
	std::string r = "{";

	for (int k = 0; k < NKEY; k++)
		if (set >> k & 1)
			r += (r.size() > 1 ? " k" : "k") + std::to_string(k);
	return r + "}";
}

inline std::string Model::show(const State &s) const
{
	std::string r = "tree" + names(s.tree) + " journal";

	for (u8 p = s.tail; p < s.head; p++)
		r += " " + std::to_string(p) + names(s.slot[p]);
	if (s.d.attached)
		r += " from=" + std::to_string(s.d.from) + " head=" + std::to_string(s.d.head);
	for (int b = 0; b < s.d.nbuckets; b++)
	{
		r += " bucket" + std::to_string(b) + "[";
		for (int c = 0; c < NCHUNK; c++)
			if (s.d.list[b] >> c & 1)
				r += " c" + std::to_string(c) + names(items(s.c[c])) + (s.c[c].owner ? " owned" : "") +
					(s.d.active[b] == c + 1 ? " active" : "");
		r += "]";
	}
	r += " committed" + names(s.done) + " removed" + names(s.removed);
	for (size_t i = 0; i < procs.size(); i++)
		if (s.p[i].snap)
			r += std::string(" ") + procs[i].name + " snapshot" + names(s.p[i].snap) + " returned" + names(s.p[i].out);
	return r;
}

}								/* namespace bucket */
