package bench

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the measurement of scale computes is tested here.

func TestShapesAddUp(t *testing.T) {
	open, ended, names := 0, 0, map[string]bool{}
	for _, s := range shapes() {
		if names[s.name] {
			t.Errorf("%q is there twice", s.name)
		}
		names[s.name] = true
		if s.state == "scheduled" {
			open += s.share
		} else {
			ended += s.share
		}
	}
	if open != 1000 || ended != 1000 || !names["fresh"] {
		t.Errorf("shares of open ones are %d thousandths, of ended ones %d", open, ended)
	}
}

func TestSlotsAreShared(t *testing.T) {
	c := &copying{seeding: seeding{rows: 1000, pending: 250}}
	for _, s := range shapes() {
		c.templates = append(c.templates, template{s, s.name})
	}
	slots := c.slots()
	if n := strings.Count(slots, "("); n != seedSlots {
		t.Errorf("%d places, want %d", n, seedSlots)
	}
	open := 0
	for _, s := range c.templates {
		if s.state == "scheduled" {
			open += strings.Count(slots, "'"+s.name+"'")
		}
	}
	if open != seedSlots/4 {
		t.Errorf("%d places for open ones, want %d", open, seedSlots/4)
	}
	seen := map[int]bool{}
	for i := range seedSlots { // the places of callbacks that follow each other are all different
		seen[i*7919%seedSlots] = true
	}
	if len(seen) != seedSlots {
		t.Errorf("callbacks reach %d of %d places", len(seen), seedSlots)
	}
}

func TestIndexCostsAreRead(t *testing.T) {
	const text = `goos: linux
BenchmarkIndex/pending=1000/lanes=1-2         	      20	         0 ns/op	       234.4 B/pending	        12.69 claim-64-p50-us	        29.75 claim-64-p99-us	       371.2 ensure-960-p50-us	        12.61 settle-64-p50-us
BenchmarkIndex/pending=5000000/lanes=1        	      20	       250.5 B/pending	        1025 claim-64-p50-us	       500 ensure-960-p50-us	        40 settle-64-p50-us
PASS
`
	costs, err := parseIndexCosts(text)
	if err != nil || len(costs) != 2 {
		t.Fatalf("%+v, %v", costs, err)
	}
	if want := (indexCost{1000, 1, 12.69, 12.61, 371.2, 234.4}); costs[0] != want || costs[1].pending != 5_000_000 || costs.fewest(1) != want {
		t.Errorf("read as %+v", costs)
	}
	held := map[string]bool{}
	for _, v := range costs.verdicts("Redis") {
		held[v.text[strings.LastIndex(v.text, ": ")+2:]] = v.holds
	}
	if len(held) != 3 || held["claim of 64, µs"] || held["÷ at the fewest pending"] || held["bytes for one"] {
		t.Errorf("the goals that are missed: %v", held)
	}
	for _, bad := range []string{"", "PASS\n", strings.ReplaceAll(text, "claim-64-p50-us", "x"), strings.ReplaceAll(text, "12.69", "0")} {
		if costs, err := parseIndexCosts(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, costs)
		}
	}
}

func TestInfoIsRead(t *testing.T) {
	const text = "# Memory\r\nused_memory:1024\r\nused_memory_human:1K\r\ncmdstat_evalsha:calls=7,usec=9,usec_per_call=1.2\r\n"
	for name, want := range map[string]float64{"used_memory": 1024, "cmdstat_evalsha": 7} {
		if got, err := infoIn(text, name); err != nil || got != want {
			t.Errorf("%s is %g, %v; want %g", name, got, err, want)
		}
	}
	if got, err := infoIn(text, "memory"); err == nil {
		t.Errorf("what is not there is %g", got)
	}
}

func TestReadsAreSummed(t *testing.T) {
	kinds := []readKind{{name: "a"}, {name: "b"}}
	var times []readTime
	for i := range 100 {
		times = append(times, readTime{1, float64(100 - i), 2})
	}
	sums := sumReads(kinds, append(times, readTime{0, 7, 1}))
	if want := (readFigures{"b", 50, 99, 100, 2}); sums[1] != want || sums[0].p99 != 7 {
		t.Errorf("%+v, want %+v", sums, want)
	}
}

// Every kind of request can be made of what was sampled.
func TestReadsAskForWhatThereIs(t *testing.T) {
	s := &samples{
		Rand: rand.New(rand.NewPCG(1, 2)), lanes: 5, from: 0, to: 10 * time.Hour.Milliseconds(),
		ids: []string{"cb_1"}, refs: []string{"r"}, cursors: []string{"c"}, dueCursors: []string{"d"},
	}
	names := map[string]bool{}
	for _, kind := range readKinds() {
		path := kind.path(s)
		if !strings.HasPrefix(path, "/v1/") || names[kind.name] {
			t.Errorf("%q, twice %t: %s", kind.name, names[kind.name], path)
		}
		names[kind.name] = true
	}
}

func TestVerdictsOfScale(t *testing.T) {
	x := &scaled{system: systems[2], figures: figures{lateness + p99: 16, lateness + earlyOnes: 0, redisPerPending: 240}}
	x.reads = []readFigures{{name: "a", p99: 40}, {name: "b", p99: 50.1}}
	var missed []string
	for _, v := range x.verdicts() {
		if !v.holds {
			missed = append(missed, v.text)
		}
	}
	if len(missed) != 2 || !strings.HasSuffix(missed[0], "of read, ms: b") || !strings.Contains(missed[1], "lateness") {
		t.Errorf("missed: %q", missed)
	}
}

func TestInputsAreSet(t *testing.T) {
	const document = "<!-- inputs -->\n| input | what it is | value | from |\n|---|---|---|---|\n| `per_day` | callbacks a day | 86400000 | chosen |\n" +
		"| `peak` | p | 2 | chosen |\n| `sent` | bytes | – | As it grows |\n<!-- /inputs -->\n<!-- results -->\n<!-- /results -->\n"
	got, err := setInputs(document, inputs{"sent": 866.7}, "here")
	if err != nil || !strings.Contains(got, "| `sent` | bytes | 867 | here |") {
		t.Fatalf("%s, %v", got, err)
	}
	for _, want := range []string{"| on average | per_day ÷ 86,400 | 1000 |", "| in the busiest second | × peak | 2000 |"} {
		if !strings.Contains(strings.Replace(got, "a second, on average", "| on average", 1), want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "| "+noValue+" |") != len(results)-2 {
		t.Errorf("results without their inputs have values:\n%s", got)
	}
	if _, err := setInputs(document, inputs{"nobody": 1}, "here"); err == nil {
		t.Error("an input without a line was set")
	}
	for _, bad := range []string{"", strings.ReplaceAll(document, "86400000", "many"), strings.ReplaceAll(document, "`peak`", "`per_day`"), strings.ReplaceAll(document, "| 2 |", "|")} {
		if _, err := workOut(bad); err == nil {
			t.Errorf("worked out of %q", bad)
		}
	}
}

// With every input there is, every result has a value.
func TestEveryResultFollowsFromTheInputs(t *testing.T) {
	text, err := os.ReadFile(scalingDocument)
	if err != nil {
		t.Fatal(err)
	}
	block, err := blockOf(string(text), "inputs")
	if err != nil {
		t.Fatal(err)
	}
	in := inputs{}
	for line := range strings.Lines(block) {
		if m := inputLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			in[m[1]] = 0.5
		}
	}
	for _, r := range results {
		if v := r.value(in); math.IsNaN(v) || v < 0 {
			t.Errorf("%s: %s is %g", r.group, r.text, v)
		}
	}
	all := inputs{}
	for name := range in {
		without := inputs{}
		for other, v := range in {
			if other != name {
				without[other] = v
			}
		}
		for _, r := range results {
			if math.IsNaN(r.value(without)) {
				all[name] = 1
			}
		}
		if all[name] == 0 {
			t.Errorf("no result needs the input %s", name)
		}
	}
}

func TestFiguresArePrinted(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0449: "0.0449", 0.5: "0.5", 1.2: "1.2", 12.34: "12.3", 123.6: "124", 27777.7: "27778", 10: "10"} {
		if got := figure(v); got != want {
			t.Errorf("%g is printed as %s, want %s", v, got, want)
		}
	}
}

// The documents have the blocks that the parts write.
func TestDocumentsHaveTheBlocks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	for _, block := range []string{blockSQL, "scale-million", blockIndex, blockCluster, blockWire} {
		if document, err = replaceBlock(document, block, "new"); err != nil {
			t.Error(err)
		}
	}
}

func TestCounterCounts(t *testing.T) {
	r := startReceiver(t)
	c := startCounter(t, strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/"))
	through, err := c.behind(r.url)
	if err != nil {
		t.Fatal(err)
	}
	if err := newSender(through, 1).send(t.Context(), "cb_0", newPayload()); err != nil {
		t.Fatal(err)
	}
	if sent, received := c.sent.Load(), c.received.Load(); sent < payloadSize || sent > 2*payloadSize || received < 20 || received > payloadSize {
		t.Errorf("%d bytes sent, %d received", sent, received)
	}
}
