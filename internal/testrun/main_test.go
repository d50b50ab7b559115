package main

import (
	"strings"
	"testing"
	"time"
)

func TestPlanNamesEveryPartOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range plan() {
		if seen[p.name] {
			t.Errorf("part %s is there twice", p.name)
		}
		seen[p.name] = true
	}
	for _, size := range []string{sizeTest, sizeFull, sizeLong} {
		if parts, err := choose(size, ""); err != nil || len(parts) == 0 {
			t.Errorf("size %s has %d parts, %v", size, len(parts), err)
		}
	}
	if _, err := choose(sizeTest, "smok"); err == nil || !strings.Contains(err.Error(), "smoke") {
		t.Errorf("an unknown part: %v; want the names of those that there are", err)
	}
	if _, err := choose("short", ""); err == nil {
		t.Error("an unknown size was taken")
	}
}

// A failed subtest counts once, not again for its parent and its package.
func TestEventsAreCounted(t *testing.T) {
	c := tests(sizeTest, "1m", "./x")
	run := newTests(c)
	err := run.read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB/one/name","Output":"b_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB/one/name"}
{"Action":"pass","Package":"p","Test":"TestB/two"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
{"Action":"fail","Package":"q"}
`))
	if err != nil || run.passed != 2 || run.failed != 2 {
		t.Errorf("%d passed, %d failed, %v; want 2, 2", run.passed, run.failed, err)
	}
	if got := c.alone(module+"/store", "TestB/a b"); !strings.HasSuffix(got, `-run '^TestB$/^a b$' ./store`) {
		t.Errorf("the command for one test is %s", got)
	}
}

func TestReportFailsWithoutATest(t *testing.T) {
	var b strings.Builder
	if report(&b, []outcome{{part: "unit"}}, time.Second) {
		t.Error("a run without a test was called good")
	}
	if !report(&b, []outcome{{part: "unit", passed: 1}}, time.Second) || !strings.Contains(b.String(), "1 passed, 0 failed") {
		t.Errorf("the report is %s", &b)
	}
}
