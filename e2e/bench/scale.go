package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A scale is what scaleCommand measures: the dispatcher as it grows.
type scale struct {
	*bench
	build
	seeding
	databases                 string
	requests                  int // of each kind, in the part "sql"
	dispatcherCounts          string
	rounds                    int
	document, scalingDocument string
	sqlBlock                  string // of the document, for the part "sql"
	tb                        testing.TB
}

type scalePart struct {
	name string
	run  func(*scale) error
}

var scaleParts = []scalePart{
	{"wire", (*scale).wire}, {"cluster", (*scale).cluster}, {"sql", (*scale).sql},
}

// scaleCommand measures the dispatcher by itself: bytes on the wire, several dispatchers on a
// Redis Cluster, and many millions of callbacks in SQL.
func scaleCommand(args []string) error {
	flags, b := newFlags("scale")
	s := &scale{bench: b}
	parts := flags.String("parts", "", "`list` of parts: wire, cluster, sql")
	program := flags.String("program", "", "built dispatcher `file`; without it this checkout is built")
	flags.IntVar(&s.rows, "rows", 100_000, "callbacks in SQL")
	flags.IntVar(&s.pending, "pending", 50_000, "how many of them are open")
	flags.IntVar(&s.lanes, "lanes", 10_000, "how many lanes they have")
	flags.StringVar(&s.databases, "databases", "postgres,sqlite", "`list` of databases")
	flags.IntVar(&s.requests, "requests", 300, "requests of each kind to the API")
	flags.StringVar(&s.dispatcherCounts, "dispatchers", "1,2,4", "dispatchers that share a Cluster, a `list`")
	flags.IntVar(&s.rounds, "rounds", 3, "how often each number of dispatchers is measured")
	flags.StringVar(&s.document, "report", "", "`file` whose blocks are replaced")
	flags.StringVar(&s.sqlBlock, "block", "scale-sql", "the `block` of the part \"sql\"")
	flags.StringVar(&s.scalingDocument, "scaling", "", "`file` whose table of inputs gets what is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := pick(*parts, scaleParts, func(p scalePart) string { return p.name })
	if err != nil {
		return err
	}
	return testserver.Outside(func(tb testing.TB) {
		s.tb, s.receiver, s.build = tb, startReceiver(tb), buildDispatcher(tb, *program)
		for _, p := range chosen {
			if err := p.run(s); err != nil {
				tb.Fatalf("%s: %v", p.name, err)
			}
		}
	})
}

// in calls f with a run of the system of that name, whose processes and servers end with it.
func (s *scale) in(name string, f func(*run)) error {
	some, err := pick(name, systems, systemName)
	if err == nil {
		_, err = s.within(s.build, some[0], f)
	}
	return err
}

// publish prints a part and writes it into its block, and its figures into the inputs of the scaling
// document.
func (s *scale) publish(block, intro string, measured numbers, from string, tables ...*table) error {
	r := report{intro: environment(s.tb) + " " + intro, heading: "####", tables: tables}
	if err := r.publish(s.document, block); err != nil {
		return err
	}
	if s.scalingDocument == "" || len(measured) == 0 {
		return nil
	}
	return rewrite(s.scalingDocument, func(text string) (string, error) {
		return setInputs(text, measured, from)
	})
}

// since describes how long something took and what else the machine did.
func (s *scale) since(began load) string {
	ended := loadNow(s.tb)
	return fmt.Sprintf("It took %s; other programs used %.0f %% of the CPU time.",
		ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began))
}
