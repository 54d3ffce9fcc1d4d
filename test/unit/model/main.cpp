/*
 * main.cpp - runs all models and all broken rules, or one of them with a trace.
 *
 *	model					all: one line each
 *	model list				what there is
 *	model MODEL [RULE]		one, with a trace if something is found
 */
#include "bucket_models.hpp"
#include "models.hpp"
#include "pages.hpp"
#include "shared.hpp"
#include <chrono>

static const u64 LIMIT = 40000000;
static int	failed, ran;

static double since(std::chrono::steady_clock::time_point t)
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

static void report(bool ok, const std::string &name, const Result &r, double sec, bool trace)
{
	std::string what = !r.fault.empty() ? r.fault : r.cut ? "limit reached" : "all hold";

	printf("%s - model %s: %s (%llu states, %d steps deep, %.1f s)\n", ok ? "ok" : "not ok", name.c_str(),
		   what.c_str(), (unsigned long long) r.states, r.fault.empty() ? r.depth : (int) r.trace.size() - 1, sec);
	for (size_t i = 0; trace && i < r.trace.size(); i++)
		printf("#   %s\n", r.trace[i].c_str());
	fflush(stdout);
	failed += !ok;
	ran++;
}

/* expect: 0 that all holds, else the digit of the property that must break */
template <class M> void run(M m, const std::string &name, char expect, bool with_ends, bool trace)
{
	Explorer<M> e(m);
	auto		t = std::chrono::steady_clock::now();
	Result		r = e.run(LIMIT, with_ends);
	bool		ok = !r.cut && (expect ? r.fault[0] == 'P' && r.fault[1] == expect : r.fault.empty() && r.ends > 0);

	report(ok, name, r, since(t), trace || !ok);
}

template <class N, class B> void run_rule(const N &n, const B &b, bool trace)
{
	auto		m = n.m;

	m.rules = b.rule;
	run(m, n.name + std::string(b.expect ? " broken by " : " without ") + b.name, b.expect, b.expect == '3', trace);
}

/* models and then broken rules, all or those asked for */
template <class N> void run_models(const std::vector<N> &models, const std::string &which, const std::string &rule)
{
	for (auto &n : models)
		if (rule.empty() && (which.empty() || which == n.name))
			run(n.m, n.name, 0, true, !which.empty());
}

template <class N, class B>
void run_rules(const std::vector<N> &models, const std::vector<B> &rules, const std::string &which, const std::string &rule)
{
	for (auto &b : rules)
		for (auto &n : models)
			if (std::string(n.name) == b.model && (which.empty() || (which == b.model && rule == b.name)))
				run_rule(n, b, !which.empty());
}

struct PagesCase
{
	const char *name, *about;
	PagesRule	rule;
	bool		empty;			/* no journal page yet */
	char		expect;
};

static const PagesCase pages_cases[] = {
	{"pages", "content locks of publishers, truncation, root split", FRESH_UNDER_APPEND_LOCK, false, 0},
	{"pages-first", "the same, no journal page yet", FRESH_UNDER_APPEND_LOCK, true, 0},
	{"pages-wait", "broken: waits for the fresh page under the append lock", FRESH_WAIT, false, '3'},
	{"pages-wait-first", "broken: waits for it under the metapage's lock", FRESH_WAIT, true, '3'},
	{"pages-fresh-first", "broken: fresh page locked, then the append lock", FRESH_FIRST, false, '3'},
	{"pages-unchecked", "broken: fresh page not checked again", FRESH_UNCHECKED, false, '5'},
};

static void run_pages(const PagesCase &c, bool trace)
{
	PagesModel	m;

	m.rule = c.rule;
	m.empty = c.empty;
	run(m, std::string(c.name) + (c.expect ? " (broken)" : ""), c.expect, !c.expect, trace);
}

struct SharedCase
{
	const char *name, *about;
	SharedRule	rule;
	char		expect;
};

static const SharedCase shared_cases[] = {
	{"shared", "the shared copy: two scans, replay, promotion", SH_ALL, 0},
	{"shared-no-serial", "broken: installs into a copy given up meanwhile", SH_NO_SERIAL, '1'},
	{"shared-no-reach", "broken: pins without a look how far it reaches", SH_NO_REACH, '1'},
	{"shared-no-tail-look", "broken: pins without a look from which tail on", SH_NO_TAIL_LOOK, '1'},
	{"shared-two-builders", "broken: two build at once", SH_TWO_BUILDERS, '1'},
	{"shared-drop-partly", "broken: drops a component that is needed in part", SH_DROP_PARTLY, '1'},
	{"shared-no-tail", "broken: returns what lies below the tail", SH_NO_TAIL, '1'},
	{"shared-no-build", "broken: takes the copy of another build", SH_NO_BUILD, '1'},
	{"shared-tree-first", "broken: reads the tree, then the copy", SH_TREE_FIRST, '1'},
	{"shared-tail-first", "no rule: the tail first, then the copy's end", SH_TAIL_FIRST, 0},
};

static void run_shared(const SharedCase &c, bool trace)
{
	SharedModel m;

	m.rule = c.rule;
	run(m, std::string(c.name) + (c.expect ? " (broken)" : ""), c.expect, !c.expect, trace);
}

template <class N, class B> void list(const std::vector<N> &models, const std::vector<B> &rules)
{
	for (auto &n : models)
		printf("model %-20s %s\n", n.name, n.about);
	for (auto &b : rules)
		printf("rule  %-20s on %-12s %s%s\n", b.name, b.model, b.about, b.expect ? "" : " (harmless)");
}

int main(int argc, char **argv)
{
	std::string which = argc > 1 ? argv[1] : "", rule = argc > 2 ? argv[2] : "";

	if (which == "list")
	{
		list(all_models(), all_rules());
		list(bucket::all_models(), bucket::all_rules());
		for (auto &c : pages_cases)
			printf("model %-20s %s\n", c.name, c.about);
		for (auto &c : shared_cases)
			printf("model %-20s %s\n", c.name, c.about);
		return 0;
	}
	run_models(all_models(), which, rule);
	run_models(bucket::all_models(), which, rule);
	for (auto &c : pages_cases)
		if (rule.empty() && (which.empty() || which == c.name))
			run_pages(c, !which.empty());
	for (auto &c : shared_cases)
		if (rule.empty() && (which.empty() || which == c.name))
			run_shared(c, !which.empty());
	run_rules(all_models(), all_rules(), which, rule);
	run_rules(bucket::all_models(), bucket::all_rules(), which, rule);
	if (!ran)
		fprintf(stderr, "no such model or rule; try \"list\"\n");
	return failed || !ran ? 1 : 0;
}
