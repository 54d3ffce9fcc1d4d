/*
 * bucket_models.hpp - bucket models that must hold, and rules that must not be
 * broken.
 */
#pragma once
#include "bucket_steps.hpp"

namespace bucket
{

enum : u8 { K0 = 1, K1 = 2, K2 = 4, K3 = 8, K4 = 16, K5 = 32 };

/* an index that is attached, chunk 0 in the buckets of the set "lists" */
inline void lay_attached(State &s, u8 nbuckets, u8 lists)
{
	s.d.attached = s.d.id = s.ids = s.gen = 1;
	s.d.from = s.d.head = s.head;
	s.d.layout = 1;
	s.d.nbuckets = nbuckets;
	for (int b = 0; b < nbuckets; b++)
		if (lists >> b & 1)
		{
			s.d.list[b] = 1;
			s.c[0].holders++;
		}
}

inline void lay_batch(State &s, u8 set, bool in_chunk)
{
	s.slot[s.head] = set;
	if (in_chunk && !s.c[0].minpos)
		s.c[0].minpos = s.head;
	s.head++;
	if (!in_chunk)
		return;
	s.d.head = s.head;
	for (int k = 0; k < NKEY; k++)
		if (set >> k & 1)
			s.c[0].item[s.c[0].n++] = (u8) (k + 1);
}

/* not attached, the dead k0 in the journal */
inline void lay_journal(State &s)
{
	lay_batch(s, K0, false);
}

/* attached, the dead k0 in the active chunk of one bucket */
inline void lay_bucket(State &s)
{
	lay_attached(s, 1, 1);
	lay_batch(s, K0, true);
	s.d.active[0] = 1;
}

/* the dead k0 below from, k5 in the active chunk */
inline void lay_mixed(State &s)
{
	lay_batch(s, K0, false);
	lay_attached(s, 1, 1);
	lay_batch(s, K5, true);
	s.d.active[0] = 1;
	s.done = K5;
}

/* two buckets, a chunk with the dead k0 and k5 in both lists */
inline void lay_both(State &s)
{
	lay_attached(s, 2, 3);
	lay_batch(s, K0 | K5, true);
	s.done = K5;
}

struct Named
{
	const char *name, *about;
	Model		m;
};

inline Model make(void (*layout) (State &), std::vector<Spec> procs, u8 nbuckets = 1, u8 chunks = NCHUNK, u8 crashes = 0)
{
	Model		m;

	m.layout = layout;
	m.procs = procs;
	m.nbuckets = nbuckets;
	m.chunks = chunks;
	m.max_crashes = crashes;
	m.dead = K0;
	m.reuse = K4;
	return m;
}

inline std::vector<Named> all_models()
{
	const Spec	vac = {"V", "v"}, vac_err = {"V", "v", true};
	const Spec	reused = {"N", "n", false, {K4}};

	return {
		{"b-attach", "publishers against attach, drop and attach again; scans",
		make(lay_journal, {{"P", "pp", true, {K1, K3}}, {"Q", "p", false, {K2 | K5}}, {"A", "ada"}, {"S", "rr"}}, 2)},
		{"b-drop", "drop and attach again under two scans, a publisher, a flusher that errs",
		make(lay_mixed, {{"S", "rr"}, {"A", "dada"}, {"P", "pp", false, {K1, K3}}, {"F", "ft", true}})},
		{"b-sweep", "sweeps and VACUUM against attach and drop, publisher, new tuple at the TID",
		make(lay_journal, {{"W", "ww", true}, vac_err, {"A", "adad"}, {"P", "pp", true, {K1, K3}}, reused})},
		{"b-reuse", "VACUUM, a new tuple at the TID, scans, a flusher that errs, drop and attach",
		make(lay_bucket, {vac_err, reused, {"S", "rr"}, {"F", "ff", true}, {"A", "dad"}})},
		{"b-flush", "two flushers that err and truncate, publisher, scan",
		make(lay_mixed, {{"F", "ft", true}, {"G", "ft", true}, {"P", "pp", true, {K1, K3}}, {"S", "r", true}})},
		{"b-split", "split and merge under a flusher, publisher, scans",
		make(lay_bucket, {{"X", "smsm"}, {"F", "ff", true}, {"P", "pp", false, {K1 | K5, K3}}, {"S", "rr"}})},
		{"b-splitvac", "split and merge under VACUUM, publisher, flusher, new tuple at the TID",
		make(lay_mixed, {{"X", "sms"}, {"F", "f", true}, {"P", "pp", true, {K1 | K3, K2}}, vac_err, reused})},
		{"b-both", "a chunk in two lists: two flushers, VACUUM cancelled once, merge, new tuple at the TID",
		make(lay_both, {{"F", "ff", true}, {"G", "ft"}, vac_err, {"X", "msd"}, reused})},
		{"b-bothscan", "a chunk in two lists: sort, flusher, merge, two scans",
		make(lay_both, {{"I", "ii"}, {"F", "f", true}, {"X", "m"}, {"S", "r", true}, {"T", "r"}})},
		{"b-sort", "a chunk in one list: sort, flusher, publisher, scans",
		make(lay_bucket, {{"I", "i"}, {"F", "f"}, {"P", "pp", false, {K1, K3}}, {"S", "r", true}, {"T", "r"}})},
		{"b-room", "two chunks for two buckets: publishers that help or go to the tree; scan; VACUUM",
		make(lay_both, {{"P", "pp", true, {K1 | K3, K2}}, {"S", "r", true}, {"F", "f"}, vac}, 2, 2)},
		{"b-cut", "truncations against publishers, a flusher, drop and attach",
		make(lay_bucket, {{"T", "tt", true}, {"P", "pp", false, {K1, K3}}, {"F", "f", true}, {"A", "dad"}, {"Q", "p", true, {K5}}})},
		{"b-crash", "two crashes anywhere: publisher, attach, flusher, truncation, VACUUM, new tuple",
		make(lay_mixed, {{"P", "p", false, {K1}}, {"A", "a"}, {"F", "ft"}, vac, reused}, 1, NCHUNK, 2)},
		{"b-crashscan", "a crash anywhere: publisher, attach, flusher, scan",
		make(lay_mixed, {{"P", "pp", false, {K1, K3}}, {"A", "a"}, {"F", "ft", true}, {"S", "r"}}, 2, NCHUNK, 1)},
		{"b-drain", "two drains wait for each other and a flusher that errs; split; publisher",
		make(lay_mixed, {{"D", "g", true}, {"E", "g"}, {"F", "ft", true}, {"X", "sm"}, {"P", "p", false, {K1 | K3}}})},
	};
}

struct Broken
{
	const char *name, *model, *about;
	u32			rule;
	char		expect;			/* the property that breaks; 0: all holds without it */
};

inline std::vector<Broken> all_rules()
{
	return {
		{"no-minpos", "b-cut", "truncation looks at the head only", NO_MINPOS, '5'},
		{"no-from", "b-flush", "truncation while tail < from", NO_FROM, '5'},
		{"cut-unlocked", "b-cut", "truncation takes the journal's head without the publish lock", CUT_UNLOCKED, '5'},
		{"unlink-first", "b-flush", "chunks unlinked before they are applied", UNLINK_FIRST, '1'},
		{"seal-unlocked", "b-flush", "active chunk sealed without the publish lock", SEAL_NOLOCK, '1'},
		{"no-generation", "b-attach", "a publisher does not compare the generation under the append lock", NO_GEN, '1'},
		{"generation-late", "b-attach", "attach bumps the generation after the append lock", GEN_LATE, '1'},
		{"generation-second", "b-attach", "a publisher reads the generation after the bucket set", GEN_SECOND, '1'},
		{"look-unlocked", "b-attach", "a publisher looks at the state without the bucket set's lock", LOOK_UNLOCKED, '1'},
		{"no-layout", "b-split", "a publisher does not compare the layout", NO_LAYOUT, '1'},
		{"tree-first", "b-flush", "leaves are read before the buckets", TREE_FIRST, '1'},
		{"no-cut", "b-room", "a window reaches beyond the bucket's fence", NO_CUT, '1'},
		{"no-remake", "b-drop", "a scan keeps its copy when attach_id changed", NO_REMAKE, '1'},
		{"drop-owned", "b-reuse", "a bucket set with an owned chunk is dropped", DROP_OWNED, '2'},
		{"drain-nowait", "b-both", "a drain does not wait for other owners", DRAIN_NOWAIT, '2'},
		{"drain-once", "b-reuse", "a drain does not begin again when the bucket set was dropped", DRAIN_ONCE, '2'},
		{"owner-blind", "b-both", "a flusher takes chunks that another owns", OWNER_BLIND, '2'},
		{"owner-kept", "b-both", "an error leaves the owner", KEEP_OWNER, '3'},
		{"owner-waits", "b-drain", "a flusher waits for LockPage(1) with chunks owned", OWNER_WAITS, '3'},
		{"split-one-half", "b-split", "a split lists the chunks in one half only", SPLIT_ONE, '1'},
		{"split-active", "b-split", "a split leaves the chunk active in the lower half", SPLIT_ACTIVE, '1'},
		{"unlink-one", "b-both", "a flusher unlinks from one bucket only", UNLINK_ONE, '3'},
		{"free-pinned", "b-room", "the flusher frees a chunk that a scan has pinned", FREE_PINNED, '6'},
		{"free-by-unlinker", "b-room", "only the flusher frees: never if a scan has it pinned", FREE_ONCE, '4'},
		{"sort-pinned", "b-sort", "order written while a scan has the chunk pinned", SORT_PINNED, '6'},
		{"sort-listed", "b-bothscan", "order written under the lock of one of two buckets", SORT_LISTED, '6'},
		{"seal-unshared", "b-bothscan", "chunks sealed without the bucket set's lock", SEAL_UNSHARED, '6'},
		{"attach-unlocked", "b-sweep", "attach without LockPage(1) while a sweep runs", ATTACH_NOLOCK, 0},
		{"sweep-to-head", "b-reuse", "a sweep of an attached index goes to the head", SWEEP_TO_HEAD, 0},
		{"v-first", "b-sweep", "V is read before [tail, from) is swept", V_FIRST, 0},
		{"tail-first", "b-drop", "a scan reads the tail before the bucket set", TAIL_FIRST, 0},
	};
}

}								/* namespace bucket */
