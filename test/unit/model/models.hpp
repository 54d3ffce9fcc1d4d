/*
 * models.hpp - the models that must hold, and the broken rules that must not.
 */
#pragma once
#include "steps.hpp"

enum : u8 { K0 = 1, K1 = 2, K2 = 4, K3 = 8, K4 = 16, K5 = 32 };

inline void add_leaf(State &s, u8 blk, u8 set, u8 next = 0, u8 high = END_KEY)
{
	s.b[blk].type = LEAF;
	s.b[blk].slot[0] = set;
	s.b[blk].next = next;
	s.b[blk].high = high;
	if (blk > s.nblocks)
		s.nblocks = blk;
}

inline void add_journal(State &s, u8 blk, u8 seq, u8 set, u8 next = 0)
{
	s.b[blk].type = JOURNAL;
	s.b[blk].seq = seq;
	s.b[blk].slot[s.b[blk].n++] = set;
	s.b[blk].next = next;
	if (blk > s.nblocks)
		s.nblocks = blk;
	if (!s.tail_blk)
	{
		s.tail_blk = blk;
		s.tail = pos_of(seq, 0);
	}
}

/* an empty leaf; the dead k0 is in the journal */
inline void lay_journal(State &s)
{
	add_leaf(s, 1, 0);
	add_journal(s, 2, 1, K0);
}

/* two journal pages, the dead k0 in the first */
inline void lay_two(State &s)
{
	add_leaf(s, 1, 0);
	add_journal(s, 2, 1, K0, 3);
	add_journal(s, 3, 2, K5);
	s.done = K5;
}

/* a full leaf with the dead k3 behind a free page; nothing in the journal */
inline void lay_split(State &s)
{
	s.nblocks = 1;
	s.fsm = 1 << 1;
	add_leaf(s, 2, K1 | K3);
	s.done = K1;
}

/* a leaf in the last block, the dead k3 in it, k0 in the journal before it */
inline void lay_flush_split(State &s)
{
	add_journal(s, 1, 1, K0, 3);
	add_leaf(s, 2, K1 | K3);
	add_journal(s, 3, 2, K2);
	s.done = K0 | K1 | K2;
}

/* a full leaf with the dead k3 in the only block */
inline void lay_grow(State &s)
{
	add_leaf(s, 1, K1 | K3);
	s.done = K1;
}

/* an empty leaf, no journal page yet, one free page */
inline void lay_first(State &s)
{
	add_leaf(s, 1, 0);
	s.nblocks = 2;
	s.fsm = 1 << 2;
}

/* a model by name */
struct Named
{
	const char *name, *about;
	Model		m;
};

inline Model make(void (*layout) (State &), std::vector<Spec> procs, u8 slots = 1, u8 crashes = 0)
{
	Model		m;

	m.layout = layout;
	m.procs = procs;
	m.slots = slots;
	m.max_crashes = crashes;
	m.dead = layout == lay_split || layout == lay_flush_split || layout == lay_grow ? K3 : layout == lay_first ? 0 : K0;
	m.reuse = m.dead ? K4 : 0;
	m.root = layout == lay_split || layout == lay_flush_split ? 2 : 1;
	m.leaf_room = m.dead == K3 ? 2 : 6;
	return m;
}

inline Model roomy(Model m, u8 leaf_room)
{
	m.leaf_room = leaf_room;
	return m;
}

inline Model promoted(Model m)
{
	m.promote = true;
	m.max_crashes = 1;
	return m;
}

inline Model any_page(Model m)
{
	m.any_free = true;
	return m;
}

inline std::vector<Named> all_models()
{
	const Spec	vac = {VACUUM, "V"}, vac_err = {VACUUM, "V", ERRS}, vac_keeps = {VACUUM, "V", ERRS | KEEPS_DEAD};
	const Spec	reused = {PUBLISHER, "N", REUSES, K4};
	const Spec	flush = {FLUSHER, "F"}, flush_err = {FLUSHER, "F", ERRS}, flush_wait = {FLUSHER, "G", WAITS};

	return {
		{"publishers", "three publishers over several pages, one errs, two sweep; the map may give any page",
		any_page(make(lay_two, {{PUBLISHER, "P", SWEEPS, K1, K2}, {PUBLISHER, "Q", ERRS | SWEEPS, K3}, {PUBLISHER, "O", 0, K4}}))},
		{"map", "VACUUM names free pages again: publishers, a split, flush; the map may give any page",
		roomy(any_page(make(lay_two, {{PUBLISHER, "P", 0, K1, K2}, {PUBLISHER, "Q", DIRECT, K1 | K3}, vac, flush})), 2)},
		{"first", "the first journal page: two publishers, one sweeps; flush; crash",
		make(lay_first, {{PUBLISHER, "P", SWEEPS, K1, K2}, {PUBLISHER, "Q", ERRS, K3}, flush_err}, 1, 1)},
		{"vacuum", "publisher that errs, flush that errs, flush that waits, VACUUM cancelled once",
		make(lay_journal, {{PUBLISHER, "P", ERRS | SWEEPS, K1}, flush_err, flush_wait, vac_err})},
		{"reuse", "VACUUM, a new tuple at the TID, scans of one session, flush that errs",
		make(lay_journal, {vac_err, reused, {READER, "S", ERRS, 0, 0, 3}, flush_err}, 2)},
		{"scan", "three scans that may err, publishers that sweep, pages recycled under the scan",
		make(lay_two, {{READER, "S", ERRS, 0, 0, 3}, {PUBLISHER, "P", SWEEPS, K1, K2}, {PUBLISHER, "Q", SWEEPS, K3}})},
		{"scanvac", "two scans, publisher, flush, VACUUM that drains dead entries too, a new tuple at the TID",
		make(lay_journal, {{READER, "S", 0, 0, 0, 2}, {PUBLISHER, "P", SWEEPS, K1}, vac_keeps, reused, flush}, 2)},
		{"recycle", "two scans while pages are truncated and recycled: two publishers, flushes",
		make(lay_two, {{READER, "S", 0, 0, 0, 2}, {PUBLISHER, "P", 0, K1, K2}, {PUBLISHER, "Q", 0, K3}, {FLUSHER, "F", ERRS, 0, 0, 2}})},
		{"own", "a session reads what it just published, twice; flush, VACUUM, another publisher",
		make(lay_journal, {{READER, "S", 0, K1, K2, 2}, {PUBLISHER, "P", ERRS, K3}, flush, vac}, 2)},
		{"standby", "standby session, two scans, over publisher, VACUUM, new tuple at the TID; promotion",
		promoted(make(lay_journal, {{READER, "S", STANDBY, 0, 0, 2}, {PUBLISHER, "P", SWEEPS, K1}, vac, reused}))},
		{"standbysplit", "standby scan over leaf splits and recycled pages",
		roomy(promoted(make(lay_two, {{READER, "S", STANDBY, 0, 0, 2}, {PUBLISHER, "P", SWEEPS, K1, K2}, {PUBLISHER, "Q", DIRECT, K0 | K3}})), 2)},
		{"crash", "two crashes anywhere: publisher that sweeps, flush, VACUUM, new tuple at the TID",
		make(lay_journal, {{PUBLISHER, "P", SWEEPS, K1, K2}, flush, vac, reused}, 1, 2)},
		{"crashscan", "a crash anywhere: publishers, flush, scans",
		make(lay_two, {{PUBLISHER, "P", SWEEPS, K1}, {PUBLISHER, "Q", 0, K2}, flush, {READER, "S", ERRS, 0, 0, 2}}, 2, 1)},
		{"split", "dense batches split leaves under VACUUM's pass; new tuple at the TID; scan",
		make(lay_split, {{PUBLISHER, "P", DIRECT, K0 | K2}, {PUBLISHER, "Q", DIRECT | ERRS, K5}, vac_err, reused, {READER, "S"}})},
		{"flushsplit", "sweeps split leaves into recycled journal pages under VACUUM's pass; crash",
		make(lay_flush_split, {{FLUSHER, "F", ERRS}, {PUBLISHER, "P", SWEEPS, K5}, vac, reused}, 1, 1)},
		{"grow", "a split extends the relation under VACUUM's pass; crash",
		make(lay_grow, {{PUBLISHER, "P", DIRECT, K0 | K2}, {PUBLISHER, "Q", SWEEPS, K5}, vac_err, reused}, 1, 1)},
		{"pins", "a session with a pinned leaf flushes and waits; VACUUM; another flush",
		make(lay_journal, {{CURSOR, "C"}, vac, flush_wait, {PUBLISHER, "P", SWEEPS, K1}})},
	};
}

struct Broken
{
	const char *name, *model, *about;
	u32			rule;
	char		expect;			/* the property that breaks; 0: no rule after all, all holds */
};

inline std::vector<Broken> all_rules()
{
	return {
		{"truncate-first", "crash", "tail := V before the entries are applied", TRUNCATE_FIRST, '5'},
		{"error-truncates", "vacuum", "a sweep that fails half way truncates", ERROR_TRUNCATES, '5'},
		{"lock-kept", "vacuum", "an error leaves LockPage(1) taken", KEEP_LOCK_ON_ERROR, '3'},
		{"drain-nowait", "vacuum", "VACUUM goes on if another sweep has LockPage(1)", DRAIN_NOWAIT, '2'},
		{"no-drain", "reuse", "VACUUM does not drain", NO_DRAIN, '2'},
		{"heap-first", "split", "line pointers reusable before the leaf pass", HEAP_FIRST, '1'},
		{"batch-before-lock", "vacuum", "the batch is read before LockPage(1)", BATCH_BEFORE_LOCK, '2'},
		{"v-before-lock", "vacuum", "V is read before LockPage(1)", V_BEFORE_LOCK, '2'},
		{"commit-first", "crash", "commit before publication", COMMIT_FIRST, '1'},
		{"tail-before-snapshot", "reuse", "the scan's tail is older than its snapshot", TAIL_BEFORE_SNAPSHOT, '1'},
		{"head-before-snapshot", "scan", "the journal is copied before the snapshot", HEAD_BEFORE_SNAPSHOT, '1'},
		{"tree-first", "scan", "leaves are read before the journal", TREE_FIRST, '1'},
		{"copy-unfiltered", "reuse", "the private copy's entries below the tail are used", COPY_UNFILTERED, '1'},
		{"standby-unfiltered", "standby", "the same on a standby", COPY_UNFILTERED, '1'},
		{"standby-old-tail", "standby", "a standby scan's tail is older than its snapshot", TAIL_BEFORE_SNAPSHOT, '1'},
		{"type-only", "recycle", "a reader looks at a page's type, not at its sequence number", TYPE_ONLY, '1'},
		{"no-restart", "recycle", "a reader that meets another page stops there", NO_RESTART, '1'},
		{"redo-left-first", "standbysplit", "redo of a split lets the left half go first", REDO_LEFT_FIRST, '1'},
		{"no-recheck", "map", "a fresh page is not checked again under the append lock", NO_RECHECK, '5'},
		{"free-at-tail", "map", "the page that holds the tail counts as free", FREE_NO_TAIL, '5'},
		{"no-cycle", "split", "VACUUM does not follow splits into blocks it has passed", NO_CYCLE, '2'},
		{"flush-no-cycle", "flushsplit", "the same, split by a sweep", NO_CYCLE, '2'},
		{"no-length", "grow", "VACUUM does not look at the relation's length again", NO_LENGTH, '2'},
		{"lock-over-pass", "pins", "VACUUM keeps LockPage(1) over the leaf pass", SWEEP_OVER_PASS, '3'},
		{"tail-after-head", "scan", "tail read after the head, both after the snapshot", TAIL_AFTER_HEAD, 0},
		{"tail-after-head", "reuse", "the same, with a TID reused", TAIL_AFTER_HEAD, 0},
		{"append-lock-type-only", "publishers", "a publisher looks at the type of its last page only", APPEND_TYPE_ONLY, 0},
	};
}
