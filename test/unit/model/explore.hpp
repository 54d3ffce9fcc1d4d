/*
 * explore.hpp - breadth-first search of all states of a model.
 *
 * A model M has a type M::State (plain bytes, no padding) and
 *   init()                  the first state
 *   next(s, steps)          every step possible in s
 *   broken(s)               what is wrong with s, or null
 *   ended(s), leaked(s)     all processes done; what an end may not leave behind
 *   who(i), show(s)         words for traces
 *
 * States are told apart by a 128-bit hash.  Parents are kept, so that the
 * first fault found is reported with a shortest trace.
 */
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

struct Hash { u64 a, b; };

inline u64 mix(u64 h, u64 w, u64 m)
{
	h = (h ^ w) * m;
	return h ^ (h >> 29);
}

template <class S> Hash hash_state(const S &s)
{
	const u8   *p = reinterpret_cast<const u8 *>(&s);
	u64			a = 0x9e3779b97f4a7c15ull, b = 0xc2b2ae3d27d4eb4full;

	for (size_t i = 0; i < sizeof(S); i += 8)
	{
		u64			w = 0;

		memcpy(&w, p + i, i + 8 <= sizeof(S) ? 8 : sizeof(S) - i);
		a = mix(a, w, 0xff51afd7ed558ccdull);
		b = mix(b, w + i, 0x9fb21c651e98df25ull);
	}
	a ^= a >> 32;
	b ^= b >> 32;
	return {a ? a : 1, b};
}

/* open addressing: hash -> number of the state */
class Seen
{
	struct Slot { u64 a, b; u32 id; };
	std::vector<Slot> slots = std::vector<Slot>(1 << 16, Slot{0, 0, 0});
	size_t		used = 0;

	Slot &find(Hash h)
	{
		size_t		mask = slots.size() - 1, i = h.a & mask;

		while (slots[i].a && (slots[i].a != h.a || slots[i].b != h.b))
			i = (i + 1) & mask;
		return slots[i];
	}
	void grow()
	{
		std::vector<Slot> old(slots.size() * 2, Slot{0, 0, 0});

		old.swap(slots);
		for (Slot &o : old)
			if (o.a)
				find({o.a, o.b}) = o;
	}

public:
	/* true and id kept if h is new, else false and its earlier number in id */
	bool add(Hash h, u32 &id)
	{
		if (used * 10 > slots.size() * 6)
			grow();
		Slot	   &s = find(h);

		if (s.a)
		{
			id = s.id;
			return false;
		}
		s = {h.a, h.b, id};
		used++;
		return true;
	}
};

template <class S> struct Step
{
	S			s;
	const char *what;
	u8			who;
	bool		fault;			/* an error or a crash: no progress */
};

struct Result
{
	u64			states = 0, steps = 0, ends = 0;
	int			depth = 0;
	bool		cut = false;	/* stopped at the limit */
	std::string fault;			/* empty: all hold */
	std::vector<std::string> trace;
};

template <class M> class Explorer
{
	typedef typename M::State S;

	M		   &m;
	Result		r;
	Seen		seen;
	std::vector<u32> parent;
	std::vector<u8> via;		/* which of the parent's steps */
	std::vector<std::pair<u32, u32>> edges; /* to, from */
	std::vector<u32> ends;

	void fail(const char *what, u32 id, int last)
	{
		std::vector<u8> path;
		std::vector<Step<S>> steps;
		S			s = m.init();

		r.fault = what;
		if (last >= 0)
			path.push_back((u8) last);
		for (u32 i = id; i; i = parent[i])
			path.push_back(via[i]);
		for (size_t i = path.size(); i-- > 0;)
		{
			steps.clear();
			m.next(s, steps);
			r.trace.push_back(std::string(m.who(steps[path[i]].who)) + ": " + steps[path[i]].what);
			s = steps[path[i]].s;
		}
		r.trace.push_back("=> " + m.show(s));
	}

	/* one state: all its steps; false at a fault */
	bool expand(const S &s, u32 id, std::vector<Step<S>> &steps,
				std::vector<std::pair<S, u32>> &fresh, bool keep_edges)
	{
		bool		progress = false;

		steps.clear();
		m.next(s, steps);
		for (size_t i = 0; i < steps.size(); i++)
		{
			u32			to = (u32) parent.size();
			bool		is_new = seen.add(hash_state(steps[i].s), to);

			r.steps++;
			progress |= !steps[i].fault;
			if (keep_edges && !steps[i].fault)
				edges.push_back({to, id});
			if (!is_new)
				continue;
			if (const char *what = m.broken(steps[i].s))
				return fail(what, id, (int) i), false;
			parent.push_back(id);
			via.push_back((u8) i);
			fresh.push_back({steps[i].s, to});
		}
		if (m.ended(s))
		{
			r.ends++;
			ends.push_back(id);
			if (const char *what = m.leaked(s))
				return fail(what, id, -1), false;
		}
		else if (!progress)
			return fail("P3 deadlock: nobody can step", id, -1), false;
		return true;
	}

	/* from each state some path of ordinary steps leads to an end */
	void check_ends()
	{
		std::vector<u32> first(parent.size() + 1, 0), from(edges.size());
		std::vector<bool> ok(parent.size(), false);
		std::vector<u32> todo;

		for (auto &e : edges)
			first[e.first + 1]++;
		for (size_t i = 0; i < parent.size(); i++)
			first[i + 1] += first[i];
		std::vector<u32> at(first.begin(), first.end() - 1);
		for (auto &e : edges)
			from[at[e.first]++] = e.second;
		for (u32 e : ends)
			ok[e] = true;
		todo = ends;
		while (!todo.empty())
		{
			u32			x = todo.back();

			todo.pop_back();
			for (u32 i = first[x]; i < first[x + 1]; i++)
				if (!ok[from[i]])
				{
					ok[from[i]] = true;
					todo.push_back(from[i]);
				}
		}
		for (size_t i = 0; i < parent.size(); i++)
			if (!ok[i])
				return fail("P3 livelock: no path to an end", (u32) i, -1);
	}

public:
	Explorer(M &model) : m(model) {}

	Result run(u64 limit, bool with_ends)
	{
		std::vector<std::pair<S, u32>> now, fresh;
		std::vector<Step<S>> steps;
		S			s = m.init();
		u32			id = 0;

		seen.add(hash_state(s), id);
		parent.push_back(0);
		via.push_back(0);
		now.push_back({s, 0});
		if (const char *what = m.broken(s))
			fail(what, 0, -1);
		for (; r.fault.empty() && !r.cut && !now.empty(); r.depth++)
		{
			fresh.clear();
			for (auto &n : now)
			{
				if (!expand(n.first, n.second, steps, fresh, with_ends))
					break;
				if (parent.size() > limit)
				{
					r.cut = true;
					break;
				}
			}
			now.swap(fresh);
		}
		r.states = parent.size();
		if (with_ends && r.fault.empty() && !r.cut)
			check_ends();
		return r;
	}
};
