package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// indexRounds is how often the benchmark ensures, claims and settles 960 items.
const indexRounds = "100x"

// indexCosts finds the figures of a line of go test that are reported, with the units that are their names.
var indexCosts = regexp.MustCompile(`^BenchmarkIndex/pending=(\d+)/lanes=(\d+)` +
	`.*\s(\S+) B/pending.*\s(\S+) claim-64-p50-us.*\s(\S+) settle-64-p50-us`)

// index runs the benchmark that each of the two indexes has, and reports both in one table.
func (s *scale) index() error {
	began := loadNow(s.tb)
	t := &table{title: "What the index costs beside a backlog", texts: 1, header: []string{
		"index", "pending", "lanes", "bytes for one that is pending", "claim of 64, µs", "settle of 64, µs",
	}}
	for _, name := range []string{"memq", "redisq"} {
		cmd := exec.Command("go", "test", "-tags", "nomsgpack", "-count=1", "-timeout", "12h", "-run", "^$",
			"-bench", "^BenchmarkIndex$", "-benchtime", indexRounds, "./schedule/"+name)
		cmd.Dir, cmd.SysProcAttr = filepath.Join("..", ".."), endWithParent()
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0",
			"DISPATCHER_BENCH_PENDING="+s.indexPending, "DISPATCHER_BENCH_LANES="+s.indexLanes)
		out, err := cmd.CombinedOutput()
		if rows := indexRows(name, string(out)); err == nil && len(rows) > 0 {
			t.rows = append(t.rows, rows...)
		} else {
			return fmt.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	intro := "One caller, a hundred rounds of 960 items, and the medians of whole calls. " + s.since(began)
	return s.publish("scale-index", intro, nil, "", t)
}

// indexRows are the rows of the table, out of what go test prints.
func indexRows(name, text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		if m := indexCosts.FindStringSubmatch(line); m != nil {
			rows = append(rows, append([]string{name}, m[1:]...))
		}
	}
	return rows
}
