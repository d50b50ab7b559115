package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// A scale is what scaleCommand measures: the dispatcher as it grows.
type scale struct {
	*bench
	build
	seeding
	databases []system
	rounds    int    // of the part "cluster"
	reports   string // directory; empty: nothing is written
	tb        testing.TB
}

type scalePart struct {
	name string
	run  func(*scale) error
}

var scaleParts = []scalePart{
	{"wire", (*scale).wire}, {"cluster", (*scale).cluster}, {"sql", (*scale).sql},
}

// scaleCommand measures the dispatcher by itself: bytes on the wire, several dispatchers on a
// Redis Cluster, and many callbacks in SQL.
func scaleCommand(args []string) error {
	flags, b := newFlags("scale")
	s := &scale{bench: b}
	partList := flags.String("parts", "", "`list` of parts: wire, cluster, sql")
	flags.IntVar(&s.rows, "rows", 100_000, "callbacks in SQL")
	flags.IntVar(&s.pending, "pending", 50_000, "how many of them are open")
	databaseList := flags.String("databases", "postgres,sqlite", "`list` of databases")
	flags.IntVar(&s.rounds, "rounds", 3, "how often each number of dispatchers is measured")
	flags.StringVar(&s.reports, "reports", "", "`directory` with performance.md and scaling.md, which are updated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts, err1 := pick(*partList, scaleParts, func(p scalePart) string { return p.name })
	var err2 error
	s.databases, err2 = pick(*databaseList, systems, systemName)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return outside(func(tb testing.TB) {
		s.tb, s.receiver, s.build = tb, startReceiver(tb), buildDispatcher(tb)
		for _, p := range parts {
			if err := p.run(s); err != nil {
				tb.Fatalf("%s: %v", p.name, err)
			}
		}
	})
}

// onServers calls f with a run on PostgreSQL and Redis, whose processes and servers end with it.
func (s *scale) onServers(f func(*run)) error {
	some, err := pick("postgres", systems, systemName)
	if err == nil {
		_, err = s.within(s.build, some[0], f)
	}
	return err
}

// publish prints a part and writes it into its block, and its figures into the inputs of docs/reports/scaling.md.
func (s *scale) publish(block, intro string, began load, measured numbers, from string, t *table) error {
	ended := loadNow(s.tb)
	intro = fmt.Sprintf("%s %s It took %s; other programs used %.0f %% of the CPU time.",
		environment(s.tb), intro, ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began))
	r := report{intro: intro, heading: "####", tables: []*table{t}}
	if s.reports == "" {
		return r.publish("", block)
	}
	return errors.Join(r.publish(filepath.Join(s.reports, "performance.md"), block),
		rewrite(filepath.Join(s.reports, "scaling.md"), func(text string) (string, error) {
			return setInputs(text, measured, "As it grows, "+from)
		}))
}
