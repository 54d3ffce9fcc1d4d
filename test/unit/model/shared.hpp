/*
 * shared.hpp - the shared copy of a journal, on a standby and after promotion.
 *
 * The journal is a row of positions with an entry each, in two windows by turns;
 * the tree is the set of those that are there, and so are the range buffers, which a
 * scan knows of that has read the tail when there were some.  Replay appends, applies
 * and moves the tail, removes the dead entry and gives its TID to a new row, makes
 * the file anew, and is promoted: then the index gets buckets, which hold what comes
 * after.
 * Two sessions scan; who finds too much that is not in the copy builds it.  The copy
 * is given up at any time, an error ends a build at any step, and a crash loses all
 * that is in shared memory.
 */
#pragma once
#include "explore.hpp"

enum { SH_POS = 4, SH_COMPONENTS = 2, SH_SCANS = 2, SH_REPLAY = 2, SH_EVICT = 3, SH_PROCS = 4 };

struct SharedScan
{
	u8			pc, scans;		/* scans left */
	u8			must;			/* positions that it has to return */
	u8			late;			/* TIDs given to other rows before its snapshot */
	u8			from, tail, own, limit, build_seen, ranges_seen;
	u8			window, view, found;
	u8			serial, btail, upto, piece, merged; /* of a build */
};

struct SharedState
{
	u8			head, tail;		/* positions appended, and below the tail */
	u8			tree, ranges, reused, file; /* the file's build */
	u8			copy_file, serial, copy_tail, upto, ncomponents, builder;
	u8			component[SH_COMPONENTS];	/* positions, as bits */
	u8			buckets;		/* positions from here on are in buckets; 0: none */
	u8			err, replay_pc, evictions, crashes;
	SharedScan	p[SH_SCANS];
};

/* rules that can be left out, as bits */
enum SharedRule : u8
{
	SH_ALL,
	SH_NO_SERIAL,				/* installs into a copy that was given up meanwhile */
	SH_NO_REACH,				/* pins without a look how far the copy reaches */
	SH_NO_TAIL_LOOK,			/* ... from which tail on */
	SH_TWO_BUILDERS,			/* builds although another does */
	SH_DROP_PARTLY,				/* drops a component of which the tail has passed an entry */
	SH_NO_TAIL,					/* returns what lies below the tail */
	SH_NO_BUILD,				/* takes the copy of another build of the file */
	SH_TREE_FIRST,				/* reads the tree before it pins */
	SH_TAIL_FIRST				/* reads the tail before it asks how far the copy reaches */
};

struct SharedModel
{
	typedef SharedState State;
	typedef std::vector<Step<State>> Steps;

	SharedRule	rule = SH_ALL;

	enum { END, SNAP, ASK, TAIL, OWN, PIN, LEAF, CLAIM, LOOK, READ, INSTALL, MERGE, REPLACE };
	enum { DEAD = 0 };			/* the position whose row is dead */

	const char *who(int i) const
	{
		static const char *const names[] = {"A", "B", "replay", "eviction"};

		return names[i];
	}
	static u8 below(u8 pos) { return (u8) ((1 << pos) - 1); }
	static u8 in_window(u8 w) { return w ? 0xaa : 0x55; }

	std::string bits(u8 set) const
	{
		std::string r;

		for (int i = 0; i < SH_POS; i++)
			if (set >> i & 1)
				r += (char) ('0' + i);
		return "{" + r + "}";
	}
	std::string show(const State &s) const
	{
		std::string r = "tail " + std::to_string(s.tail) + " head " + std::to_string(s.head) + " tree " + bits(s.tree) +
			" copy up to " + std::to_string(s.upto);

		for (int i = 0; i < s.ncomponents; i++)
			r += " " + bits(s.component[i]);
		return r;
	}
	const char *broken(const State &s) const
	{
		return s.err == 1 ? "P1 a scan misses an entry" : s.err == 2 ? "P1 a scan returns an entry whose TID is another row's" : nullptr;
	}
	bool ended(const State &s) const
	{
		return s.p[0].pc == END && s.p[1].pc == END && s.replay_pc == 255;
	}
	const char *leaked(const State &s) const { return s.builder ? "P4 there is a builder at the end" : nullptr; }

	State init() const
	{
		State		s;

		memset(&s, 0, sizeof s);
		s.head = 2;
		s.evictions = 1;
		s.crashes = 1;
		for (auto &p : s.p)
		{
			p.pc = SNAP;
			p.scans = 1;
		}
		return s;
	}

	void next(const State &s, Steps &out) const
	{
		for (u8 i = 0; i < SH_SCANS; i++)
			scan(s, i, out);
		replay(s, out);
		if (s.evictions && s.upto)
		{
			State		n = s;

			n.evictions--;
			forget(n);
			out.push_back({n, "the copy is given up", SH_EVICT, true});
		}
		if (s.crashes)
		{
			State		n = s;

			n.crashes--;
			forget(n);
			n.builder = 0;
			for (auto &p : n.p)
				if (p.pc != END)
					begin_again(p);
			out.push_back({n, "a crash: all shared memory is lost", SH_REPLAY, true});
		}
	}

	static void forget(State &n)
	{
		n.ncomponents = n.upto = n.copy_tail = 0;
		memset(n.component, 0, sizeof n.component);
		n.serial++;
	}
	static void begin_again(SharedScan &p)
	{
		u8			scans = p.scans;

		memset(&p, 0, sizeof p);
		p.scans = scans;
		p.pc = scans ? SNAP : END;
	}

	/* appended, applied, appended, removed, appended, the file made anew, promoted, appended */
	void replay(const State &s, Steps &out) const
	{
		State		n = s;
		const char *what;

		if (s.replay_pc == 255)
			return;
		n.replay_pc++;
		switch (s.replay_pc)
		{
			case 0:
				n.tree |= below(1);
				n.tail = 1;
				what = "position 0 is in the tree, the tail passes it";
				break;
			case 1:
				n.tree &= ~(1 << DEAD);
				what = "VACUUM removes the entry at 0";
				break;
			case 2:
				n.reused |= 1 << DEAD;
				what = "its TID gets another row";
				break;
			case 3:
				n.head = 3;
				what = "appends at 2";
				break;
			case 4:
				n.ranges |= 1 << 1;
				n.tail = 2;
				what = "position 1 is in the first component, the tail passes it";
				break;
			case 5:
				n.buckets = s.head;
				what = "promoted: the index gets buckets";
				break;
			case 6:
				n.head = 4;
				what = "appends at 3, and to the buckets";
				break;
			case 7:
				/* under a lock that excludes scans */
				for (auto &p : s.p)
					if (p.pc != END && p.pc != SNAP)
						return;
				n.file = 1;
				n.tree = n.ranges = n.reused = n.tail = n.buckets = 0;
				n.head = 3;
				what = "the file is made anew, with other entries";
				break;
			default:
				n.replay_pc = 255;
				what = "ends";
		}
		out.push_back({n, what, SH_REPLAY, false});
	}

	/* the entry that is dead: it need not be returned */
	u8 live(const State &s) const { return s.file ? below(s.head) : below(s.head) & ~(1 << DEAD); }
	bool is_current(const State &s) const { return s.copy_file == s.file || rule == SH_NO_BUILD; }

	void scan(const State &s, u8 i, Steps &out) const
	{
		const SharedScan &q = s.p[i];
		State		n = s;
		SharedScan &p = n.p[i];
		const char *what = nullptr;

		switch (q.pc)
		{
			case END:
				return;
			case SNAP:
				p.must = live(s);
				p.late = s.reused;
				p.found = p.window = 0;
				p.pc = rule == SH_TAIL_FIRST ? TAIL : ASK;
				what = "takes its snapshot";
				break;
			case ASK:
				p.from = is_current(s) ? s.upto : 0;
				p.pc = rule == SH_TAIL_FIRST ? OWN : TAIL;
				what = "asks how far the copy reaches";
				break;
			case TAIL:
				p.tail = s.tail;
				p.limit = s.buckets ? s.buckets : (u8) SH_POS;
				p.build_seen = s.buckets;
				p.ranges_seen = s.ranges != 0;
				p.pc = rule == SH_TAIL_FIRST ? ASK : OWN;
				what = "reads the tail, and whether there are buckets";
				break;
			case OWN:
				what = own(s, p);
				break;
			case PIN:
				what = pin(s, p);
				break;
			case LEAF:
				what = leaf(s, n, p);
				break;
			case CLAIM:
				if (s.builder && rule != SH_TWO_BUILDERS)
				{
					out.push_back({n, "waits no longer, reads all by itself", i, false});
					out.back().s.p[i].pc = PIN;
					out.back().s.p[i].from = 0;
					read_own(s, out.back().s.p[i]);
					return;
				}
				n.builder = i + 1;
				p.serial = s.serial;
				p.pc = LOOK;
				what = "becomes the builder";
				break;
			default:
				what = build(s, n, p);
				if (q.pc != READ || q.btail)
				{
					/* an error: the build ends, and with it the scan */
					State		e = s;

					e.builder = 0;
					if (e.p[i].scans)
						e.p[i].scans--;
					begin_again(e.p[i]);
					out.push_back({e, "an error ends the build", i, true});
				}
		}
		if (what)
			out.push_back({n, what, i, false});
	}

	void read_own(const State &s, SharedScan &p) const
	{
		u8			start = p.from > p.tail ? p.from : p.tail;
		u8			end = s.head < p.limit ? s.head : p.limit;

		p.own = end > start ? below(end) & ~below(start) : 0;
	}
	const char *own(const State &s, SharedScan &p) const
	{
		u8			start = p.from > p.tail ? p.from : p.tail;
		u8			end = s.head < p.limit ? s.head : p.limit;

		/* a page of the journal was recycled, as the tail has passed it */
		if (s.tail > start && p.tail < s.tail)
		{
			p.pc = rule == SH_TAIL_FIRST ? TAIL : ASK;
			return "a page is not the one expected: begins again";
		}
		if (end > start + 1)
		{
			p.pc = CLAIM;
			return "too much is not in the copy";
		}
		read_own(s, p);
		p.pc = PIN;
		if (rule == SH_TREE_FIRST)
			p.view = s.tree & in_window(p.window);
		return "reads the rest of the journal";
	}
	const char *pin(const State &s, SharedScan &p) const
	{
		bool		reaches = p.from <= p.tail ||
			(is_current(s) && (s.upto >= p.from || rule == SH_NO_REACH) &&
			 (s.copy_tail <= p.tail || rule == SH_NO_TAIL_LOOK));

		if (s.buckets != p.build_seen)
		{
			p.pc = rule == SH_TAIL_FIRST ? TAIL : ASK;
			return "the index has got buckets: begins again";
		}
		if (!reaches)
		{
			p.pc = rule == SH_TAIL_FIRST ? TAIL : ASK;
			return "the copy does not reach as far any more: begins again";
		}
		if (rule != SH_TREE_FIRST)
			p.view = 0;
		if (p.from > p.tail && is_current(s))
			for (int i = 0; i < s.ncomponents; i++)
				p.view |= s.component[i];
		/* what the bucket has: all from the buckets' beginning on */
		if (s.buckets)
			p.view |= below(s.head) & ~below(s.buckets);
		p.pc = LEAF;
		return "pins what the copy has";
	}
	const char *leaf(const State &s, State &n, SharedScan &p) const
	{
		u8			above = rule == SH_NO_TAIL ? p.own | p.view : (p.own | p.view) & ~below(p.tail);
		u8			tree = rule == SH_TREE_FIRST ? 0 : s.tree;

		if (rule == SH_TREE_FIRST)
			above = p.own | p.view;
		if (p.ranges_seen)
			tree |= s.ranges;
		p.found |= (above | tree) & in_window(p.window);
		p.pc = PIN;
		p.view = rule == SH_TREE_FIRST ? s.tree & in_window(1) : 0;
		if (p.window++ == 0)
			return "reads the leaf of the first window";
		if ((p.must & ~p.found) != 0)
			n.err = 1;
		if ((p.found & p.late) != 0)
			n.err = 2;
		p.scans--;
		begin_again(p);
		return "reads the leaf of the second window, ends";
	}

	/* what the copy's builder does; lists change under both locks, so in a step */
	const char *build(const State &s, State &n, SharedScan &p) const
	{
		bool		ours = (s.serial == p.serial || rule == SH_NO_SERIAL) && is_current(s);

		if (!ours && p.pc != LOOK)
			return give_up(n, p, "finds the copy given up");
		switch (p.pc)
		{
			case LOOK:
				return look(s, n, p);
			case READ:
			{
				u8			end = s.head < p.limit ? s.head : p.limit;

				if (end > p.upto + 2)
					end = p.upto + 2;
				p.piece = below(end) & ~below(p.upto);
				p.upto = end;
				p.pc = INSTALL;
			}
				return "reads and sorts a piece";
			case INSTALL:
				n.component[n.ncomponents++] = p.piece;
				n.upto = p.upto;
				p.pc = n.ncomponents == SH_COMPONENTS ? MERGE : LOOK;
				return "installs a component";
			case MERGE:
				p.merged = (u8) (s.component[s.ncomponents - 1] | s.component[s.ncomponents - 2]) & ~below(p.btail);
				p.pc = REPLACE;
				return "merges the newest two";
			case REPLACE:
				if (n.ncomponents >= 2)
				{
					n.component[--n.ncomponents] = 0;
					n.component[n.ncomponents - 1] = p.merged;
				}
				p.pc = LOOK;
				return "installs what was merged";
		}
		return nullptr;
	}
	const char *look(const State &s, State &n, SharedScan &p) const
	{
		u8			kept = 0;

		/* a copy of another build goes when the bucket set is made anew */
		if (!is_current(s) || (!s.upto && !s.ncomponents))
		{
			forget(n);
			n.serial = s.serial;
			n.copy_file = s.file;
		}
		else if (s.serial != p.serial && rule != SH_NO_SERIAL)
			return give_up(n, p, "finds the copy given up");
		for (int i = 0; i < n.ncomponents; i++)
		{
			u8			needed = n.component[i] & ~below(s.tail);

			if (rule == SH_DROP_PARTLY ? needed == n.component[i] : needed != 0)
				n.component[kept++] = n.component[i];
		}
		for (int i = kept; i < n.ncomponents; i++)
			n.component[i] = 0;
		n.ncomponents = kept;
		if (n.upto < s.tail)
			n.upto = s.tail;
		n.copy_tail = s.tail;
		p.btail = s.tail;
		p.upto = n.upto;
		if (p.upto >= s.head || p.upto >= p.limit)
			return give_up(n, p, "has come to the end");
		p.pc = n.ncomponents == SH_COMPONENTS ? MERGE : READ;
		return "leaves out what the tail has passed";
	}
	const char *give_up(State &n, SharedScan &p, const char *what) const
	{
		n.builder = 0;
		p.serial = p.btail = p.upto = p.piece = p.merged = 0;
		p.pc = rule == SH_TAIL_FIRST ? TAIL : ASK;
		return what;
	}
};
