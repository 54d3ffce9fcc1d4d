/*
 * pages.hpp - a second model: content locks and the journal's last page.
 *
 * Here each lock is taken and released in steps of its own: two publishers,
 * one that truncates, a tree split (of the root too, which wants the metapage)
 * and VACUUM, which names free pages in the map again.  Entries do not matter,
 * a page is full after one batch.
 */
#pragma once
#include "explore.hpp"

enum { PG_BLOCKS = 8, PG_PROCS = 5, PG_META = 0 };	/* block 0: the metapage */

struct PagesProc
{
	u8			pc, todo;		/* batches left */
	u8			hint, hint_seq; /* last page, as remembered */
	u8			cur, seq, fresh;
};

struct PagesState
{
	struct { u8 type, seq, next, full, locked; } b[PG_BLOCKS];
	u8			tail_seq, tail_blk, fsm, nblocks, err;
	PagesProc	p[PG_PROCS];
};

/* variants of the rule for fresh pages */
enum PagesRule : u8
{
	FRESH_UNDER_APPEND_LOCK,			/* the rule: locked under the append lock if it is free to lock, checked again */
	FRESH_WAIT,					/* under the append lock, waiting for it */
	FRESH_FIRST,				/* locked before the append lock and kept */
	FRESH_UNCHECKED				/* not checked again */
};

struct PagesModel
{
	typedef PagesState State;
	typedef std::vector<Step<State>> Steps;

	PagesRule	rule = FRESH_UNDER_APPEND_LOCK;
	bool		empty = false;	/* no journal page yet */

	enum { Z, T, J };			/* zero, tree, journal */
	enum { END, FIND, LOCK, LOOK, LINK, TAKE, CHECK, FIRST, FIRST_LOOK, CUT, MAP, GRAB, GROW, META, INIT, NAME };

	const char *who(int i) const
	{
		static const char *const names[] = {"P", "Q", "truncate", "split", "VACUUM"};

		return names[i];
	}
	std::string show(const State &s) const
	{
		std::string r = "tail at block " + std::to_string(s.tail_blk);

		for (int i = 1; i <= s.nblocks; i++)
			r += std::string(" [") + "ZTJ"[s.b[i].type] + std::to_string(s.b[i].seq) +
				(s.b[i].locked ? " locked by " + std::string(who(s.b[i].locked - 1)) : "") + "]";
		return r;
	}
	const char *leaked(const State &s) const
	{
		for (auto &b : s.b)
			if (b.locked)
				return "P4 a page is locked at the end";
		return nullptr;
	}
	const char *broken(const State &s) const
	{
		return s.err == 1 ? "P5 a page in use was initialised as something else" :
			s.err ? "the model has too few blocks" : nullptr;
	}
	bool ended(const State &s) const
	{
		for (auto &p : s.p)
			if (p.pc != END)
				return false;
		return true;
	}

	State init() const
	{
		State		s;

		memset(&s, 0, sizeof s);
		s.nblocks = 2;
		s.fsm = 1 << 2;
		if (empty)
			s.fsm = 1 << 1 | 1 << 2;
		else
		{
			s.b[1] = {J, 1, 0, 1, 0};
			s.tail_blk = s.tail_seq = 1;
			s.p[0].hint = s.p[0].hint_seq = s.p[1].hint = s.p[1].hint_seq = 1;
		}
		s.p[0].pc = s.p[1].pc = FIND;
		s.p[0].todo = 2;
		s.p[1].todo = 1;
		s.p[2].pc = CUT;
		s.p[2].todo = 2;
		s.p[3].pc = GRAB;
		s.p[4].pc = NAME;
		return s;
	}

	bool is_free(const State &s, u8 blk) const
	{
		return s.b[blk].type == Z || (s.b[blk].type == J && s.b[blk].seq < s.tail_seq);
	}
	/* the lowest page that the map names, or a new one */
	u8 from_map(State &n) const
	{
		for (u8 b = 1; b < PG_BLOCKS; b++)
			if (n.fsm >> b & 1)
				return n.fsm &= ~(1 << b), b;
		if (n.nblocks + 1 < PG_BLOCKS)
			return ++n.nblocks;
		n.err = 2;
		return 1;
	}
	void make(State &n, u8 blk, u8 type, u8 seq) const
	{
		if (!is_free(n, blk))
			n.err = 1;
		n.b[blk].type = type;
		n.b[blk].seq = seq;
		n.b[blk].next = 0;
		n.b[blk].full = 1;
	}

	void next(const State &s, Steps &out) const
	{
		for (int i = 0; i < PG_PROCS; i++)
		{
			size_t		had = out.size();
			State		n = s;
			const char *what = s.p[i].pc == END ? nullptr : i < 2 ? publish(s, n, i) : other(s, n, i);

			if (what && out.size() == had)
				out.push_back({n, what, (u8) i, false});
		}
	}

	/* the page to link cannot be had: null means wait for it */
	const char *fresh_busy(State &n, int i, u8 lane) const
	{
		if (rule == FRESH_WAIT)
			return nullptr;
		n.b[lane].locked = 0;
		n.p[i].fresh = 0;
		n.p[i].pc = TAKE;
		return "fresh page is locked by another: let go of all, takes another";
	}
	const char *done_one(State &n, int i) const
	{
		PagesProc  &p = n.p[i];

		if (p.fresh && rule == FRESH_FIRST)
			n.b[p.fresh].locked = 0;
		if (p.fresh)
			n.fsm |= 1 << p.fresh;
		p.fresh = p.cur = p.seq = 0;
		p.pc = --p.todo ? FIND : END;
		if (p.pc == END)
			p.hint = p.hint_seq = 0;
		return "batch appended (WAL), all unlocked";
	}

	const char *publish(const State &s, State &n, int i) const
	{
		PagesProc  &p = n.p[i];
		const u8	id = (u8) (i + 1);

		switch (p.pc)
		{
			case FIND:
				if (p.hint)
				{
					p.cur = p.hint;
					p.seq = p.hint_seq;
					p.hint = p.hint_seq = 0;
					p.pc = LOCK;
					return "goes to the page it remembers";
				}
				if (s.b[PG_META].locked)
					return nullptr;
				p.cur = s.tail_blk;
				p.seq = s.tail_seq;
				p.pc = p.cur ? LOCK : FIRST;
				return "metapage: tail read";
			case LOCK:
				if (s.b[p.cur].locked)
					return nullptr;
				n.b[p.cur].locked = id;
				p.pc = LOOK;
				return "page locked";
			case LOOK:
				return look(s, n, i);
			case LINK:
				return link(s, n, i, p.cur);
			case TAKE:
				p.fresh = from_map(n);
				p.pc = CHECK;
				return "page taken from the map, or a new one";
			case CHECK:
				if (s.b[p.fresh].locked || !is_free(s, p.fresh))
				{
					p.fresh = 0;
					p.pc = TAKE;
					return "page is locked or in use: takes another";
				}
				if (rule == FRESH_FIRST)
					n.b[p.fresh].locked = id;
				p.pc = FIND;
				return "page is free";
			case FIRST:
				if (s.b[PG_META].locked)
					return nullptr;
				n.b[PG_META].locked = id;
				p.pc = FIRST_LOOK;
				return "metapage locked";
			case FIRST_LOOK:
				if (!s.tail_blk && p.fresh)
					return link(s, n, i, PG_META);
				n.b[PG_META].locked = 0;
				p.pc = s.tail_blk ? FIND : TAKE;
				return s.tail_blk ? "another made the first page" : "needs a page";
		}
		return nullptr;
	}

	/* the page thought to be the last is locked */
	const char *look(const State &s, State &n, int i) const
	{
		PagesProc  &p = n.p[i];
		auto	   &c = s.b[p.cur];

		if (c.type == J && c.seq == p.seq && !c.next && p.fresh)
		{
			p.pc = LINK;
			return "it is the last page";
		}
		n.b[p.cur].locked = 0;
		if (c.type != J || c.seq != p.seq)
		{
			p.cur = p.seq = 0;
			p.pc = FIND;
			return "not the page expected: unlocked";
		}
		if (c.next)
		{
			p.cur = c.next;
			p.seq++;
			p.pc = LOCK;
			return "has a successor: unlocked, goes there";
		}
		p.hint = p.cur;
		p.hint_seq = p.seq;
		p.cur = p.seq = 0;
		p.pc = TAKE;
		return "last page is full: unlocked, needs a page";
	}

	/* lane: the last page, or the metapage for the first one */
	const char *link(const State &s, State &n, int i, u8 lane) const
	{
		PagesProc  &p = n.p[i];

		if (rule != FRESH_FIRST && s.b[p.fresh].locked)
			return fresh_busy(n, i, lane);
		if (rule != FRESH_UNCHECKED && !is_free(s, p.fresh))
		{
			n.b[lane].locked = n.b[p.fresh].locked = 0;
			p.fresh = 0;
			p.pc = TAKE;
			return "fresh page is no longer free: let go of all";
		}
		make(n, p.fresh, J, lane ? s.b[lane].seq + 1 : 1);
		n.b[p.fresh].locked = 0;
		n.b[lane].locked = 0;
		if (lane)
			n.b[lane].next = p.fresh;
		else
		{
			n.tail_blk = p.fresh;
			n.tail_seq = 1;
		}
		p.hint = p.fresh;
		p.hint_seq = n.b[p.fresh].seq;
		p.fresh = 0;
		return done_one(n, i);
	}

	const char *other(const State &s, State &n, int i) const
	{
		PagesProc  &p = n.p[i];
		const u8	id = (u8) (i + 1);

		switch (p.pc)
		{
			case CUT:
				return cut(s, n, i);
			case MAP:
				n.fsm |= p.fresh;
				p.fresh = 0;
				p.pc = --p.todo ? CUT : END;
				return "pages left behind go to the map";
			case GRAB:
				p.fresh = from_map(n);
				p.pc = GROW;
				return "leaf locked; page taken from the map, or a new one";
			case GROW:
				if (s.b[p.fresh].locked || !is_free(s, p.fresh))
				{
					p.fresh = 0;
					p.pc = GRAB;
					return "page is locked or in use: takes another";
				}
				n.b[p.fresh].locked = id;
				p.pc = META;
				return "page locked, is free";
			case META:
				if (s.b[PG_META].locked)
					return nullptr;
				n.b[PG_META].locked = id;
				p.pc = INIT;
				return "new root: metapage locked too";
			case INIT:
				make(n, p.fresh, T, 0);
				n.b[p.fresh].locked = n.b[PG_META].locked = 0;
				p.fresh = 0;
				p.pc = END;
				return "page initialised as a tree page (WAL), all unlocked";
			case NAME:
				for (u8 b = 1; b <= s.nblocks; b++)
					if (!s.b[b].locked && is_free(s, b))
						n.fsm |= 1 << b;
				p.pc = END;
				return "names all free pages in the map";
		}
		return nullptr;
	}

	/* tail := the last page */
	const char *cut(const State &s, State &n, int i) const
	{
		if (s.b[PG_META].locked)
			return nullptr;
		while (n.tail_blk && n.b[n.tail_blk].next)
		{
			n.p[i].fresh |= 1 << n.tail_blk;
			n.tail_blk = n.b[n.tail_blk].next;
			n.tail_seq++;
		}
		n.p[i].pc = MAP;
		return "tail := head (WAL)";
	}
};
