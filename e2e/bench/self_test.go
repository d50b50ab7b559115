package bench

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What the benchmark computes is tested here, on figures whose results are known.

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3, 1}},
		{[]float64{9, 1, 4}, spread{4, 1, 9, 3}},
		{[]float64{4, 1, 9, 2}, spread{3, 1, 9, 4}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(i+1))
	}
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0.5, 7}, {[]float64{7}, 0.99, 7}, {[]float64{1, 2}, 0.5, 1},
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %g of %v is %g, want %g", c.q, c.values, got, c.want)
		}
	}
}

func TestBusySeconds(t *testing.T) {
	busy, err := busySeconds("cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3\n")
	if err != nil || math.Abs(busy-1.71) > 1e-9 {
		t.Errorf("busy for %g s, %v; want 1.71", busy, err)
	}
}

func TestMeterKnowsThisProcess(t *testing.T) {
	m := meter{roles: map[int]string{os.Getpid(): roleClient}}
	bytes, err := m.memory()
	if err != nil || bytes[roleClient] < 1<<20 {
		t.Errorf("memory %v, %v", bytes, err)
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		if cpu, err := m.cpu(); err != nil || cpu[roleClient] > 0 { // reading costs CPU time too
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("this process has used no CPU time in a minute")
}

func TestDiskIsTimed(t *testing.T) {
	if took, err := syncTime(t.TempDir()); err != nil || took <= 0 {
		t.Errorf("fsync took %s, %v", took, err)
	}
	if took, err := syncTime("/nowhere"); err == nil {
		t.Errorf("fsync in no directory took %s", took)
	}
}

func TestSubmissionsCarryTheirNumber(t *testing.T) {
	due := time.Date(2026, 11, 21, 20, 0, 0, 7_000_000, time.UTC)
	s := newSubmission("http://127.0.0.1:1/")
	text := s.appendBatch(nil, 41, 43, func(n int) time.Time {
		if n == 41 {
			return time.Time{}
		}
		return due
	})
	var batch struct {
		Callbacks []struct {
			URL     string          `json:"url"`
			DueAt   *time.Time      `json:"due_at"`
			Payload json.RawMessage `json:"payload"`
		} `json:"callbacks"`
	}
	if err := json.Unmarshal(text, &batch); err != nil || len(batch.Callbacks) != 2 {
		t.Fatalf("%v in %s", err, text)
	}
	for i, cb := range batch.Callbacks {
		if n, ok := numberOf(cb.Payload); !ok || n != 41+i || len(cb.Payload) != payloadSize || cb.URL != s.url {
			t.Errorf("callback %d: number %d %t, %d bytes, %s", i, n, ok, len(cb.Payload), cb.URL)
		}
	}
	if batch.Callbacks[0].DueAt != nil || !batch.Callbacks[1].DueAt.Equal(due) {
		t.Errorf("due at %v and %v", batch.Callbacks[0].DueAt, batch.Callbacks[1].DueAt)
	}
	for _, stranger := range []string{"", "warm", strings.Repeat("x", payloadSize), payloadStart + "0000000x" + strings.Repeat("x", payloadSize-14)} {
		if n, ok := numberOf([]byte(stranger)); ok {
			t.Errorf("%.20q has number %d", stranger, n)
		}
	}
}

func TestOpenLoopKeepsToTheClock(t *testing.T) {
	const n, rate = 50, 1000
	posted := make([]bool, n)
	start := time.Now()
	run, err := openLoop(t.Context(), rate, n, func() func(int) error {
		return func(i int) error { posted[i] = true; return nil }
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if !posted[i] || run.answered[i].Before(run.began[i]) {
			t.Errorf("request %d: posted %t, began %s, answered %s", i, posted[i], run.began[i], run.answered[i])
		}
		if planned := start.Add(time.Duration(i) * time.Second / rate); run.began[i].Before(planned) {
			t.Errorf("request %d began %s early", i, planned.Sub(run.began[i]))
		}
	}
	broken := errors.New("broken")
	if _, err := openLoop(context.Background(), rate, n, func() func(int) error { return func(int) error { return broken } }); !errors.Is(err, broken) {
		t.Errorf("a loop whose requests fail: %v", err)
	}
}

func TestEarlyOnesAreFound(t *testing.T) {
	due := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	late, early := lateBy([]time.Time{due, due.Add(1500 * time.Microsecond), due.Add(-time.Nanosecond)}, dueAll(due))
	if early != 1 || late[0] != 0 || late[1] != 1.5 || late[2] >= 0 {
		t.Errorf("%d early, late by %v ms", early, late)
	}
}

func TestBlockIsReplaced(t *testing.T) {
	const document = "# Title\n\n<!-- compare -->\nold\n<!-- /compare -->\n\nby hand\n<!-- scale -->\nkept\n<!-- /scale -->\n"
	got, err := replaceBlock(document, "compare", "\nnew\n\n")
	if want := strings.Replace(document, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if again, err := replaceBlock(got, "compare", "new"); err != nil || again != got {
		t.Errorf("a second time: %q, %v", again, err)
	}
	for _, bad := range []string{"", "<!-- compare -->", document + document, "<!-- /compare --> <!-- compare -->"} {
		if got, err := replaceBlock(bad, "compare", "new"); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// twoRounds are figures in which system b holds its goals and c misses one.
func twoRounds() book {
	b := book{}
	put := func(key string, rates, cpu [2]float64) {
		for i := range rates {
			f := figures{delivered: rates[i], deliverCPU: cpu[i], memory: 50e6}
			f.putCPU(deliverCPU, map[string]float64{}, map[string]float64{roleDispatcher: cpu[i], "postgres": cpu[i], roleReceiver: 1}, 1000, []string{roleDispatcher})
			for _, concurrency := range []int{64, 256} {
				b[row{key, concurrency}] = append(b[row{key, concurrency}], f)
			}
		}
	}
	put("a", [2]float64{40000, 30000}, [2]float64{0.03, 0.03})
	put("b", [2]float64{24000, 18000}, [2]float64{0.05, 0.06})
	put("c", [2]float64{10000, 11000}, [2]float64{0.09, 0.09})
	return b
}

func TestGoalsAreJudged(t *testing.T) {
	b := twoRounds()
	if got, want := b.ratio(row{"b", 64}, row{"a", 64}, delivered), (spread{0.6, 0.6, 0.6, 2}); got != want {
		t.Errorf("b to a is %+v, want %+v", got, want)
	}
	if got := b.of(row{"b", 64}, deliverCPU+":"+roleDispatcher); got.least != 0.05 || got.most != 0.06 {
		t.Errorf("the dispatcher's part is %+v", got)
	}
	if got := b.of(row{"b", 64}, deliverCPU+":postgres"); got.rounds != 0 {
		t.Errorf("what does not count has a part: %+v", got)
	}
	err := checkGoals(b)
	if err == nil || !strings.Contains(err.Error(), "(c) ÷ (a): 0.30, goal 0.38") || strings.Contains(err.Error(), "(b)") {
		t.Errorf("the check says %v", err)
	}
	delete(b, row{"c", 64})
	if err := checkGoals(b); err != nil {
		t.Errorf("without c the check says %v", err)
	}
	if err := checkGoals(book{}); err == nil {
		t.Error("a run that measured nothing holds its goals")
	}
	b[row{"b", 64}][1][lateness+earlyOnes] = 3
	if err := checkGoals(b); err == nil || !strings.Contains(err.Error(), "early: 3") {
		t.Errorf("early ones in one round: %v", err)
	}
}

func TestReportShowsEveryFigure(t *testing.T) {
	r := newReport(twoRounds(), "Introduction.", systems, []int{64, 256})
	for _, text := range []string{r.console(), r.markdown("performance.svg")} {
		for _, want := range []string{"Introduction.", "35000 (30000–40000)", "0.60 (0.60–0.60)", "0.055 (0.050–0.060)", "(c) dispatcher, PostgreSQL + Redis", "Goals"} {
			if !strings.Contains(text, want) {
				t.Errorf("the report lacks %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "Lateness") || strings.Contains(text, "asynq") {
			t.Errorf("the report has what was not measured:\n%s", text)
		}
	}
	chart := string(r.chart())
	for _, want := range []string{`role="img"`, "<title", "<desc", "prefers-color-scheme: dark", ">35000<", ">0.055<", "River"} {
		if has := strings.Contains(chart, want); has != (want != "River") {
			t.Errorf("the chart has %q: %t", want, has)
		}
	}
	checkChart(t, chart)
}

// checkChart looks whether the chart is XML and every bar and text begins inside of it.
func checkChart(t *testing.T, chart string) {
	t.Helper()
	bars := 0
	decoder := xml.NewDecoder(strings.NewReader(chart))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the chart is not XML: %v", err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range element.Attr {
			at[a.Name.Local] = a.Value
		}
		if at["x"] == "" {
			continue
		}
		x, err := strconv.ParseFloat(at["x"], 64)
		width := 0.0
		if err == nil && element.Name.Local == "rect" {
			bars++
			width, err = strconv.ParseFloat(at["width"], 64)
		}
		if err != nil || x < 0 || x+width > chartWidth {
			t.Errorf("%s at %s, %s wide: %v", element.Name.Local, at["x"], at["width"], err)
		}
	}
	if want := 3*2*2 + 4; bars != want { // three systems, two concurrencies, two panels; the legend
		t.Errorf("%d bars, want %d", bars, want)
	}
}

func TestAxesEndInRoundNumbers(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 0.055: 0.06, 0.95: 1, 0.96: 1.2, 1: 1.2, 40000: 60000, 61000: 80000, 9.9: 12} {
		if got := roundTop(most); got < want*0.999 || got > want*1.001 {
			t.Errorf("an axis to %g ends at %g, want %g", most, got, want)
		}
	}
}

func TestChoices(t *testing.T) {
	if got, err := pick("c,a"); err != nil || len(got) != 2 || got[0].key != "c" {
		t.Errorf("picked %v, %v", got, err)
	}
	if _, err := pick("a,x"); err == nil {
		t.Error("picked a system that is none")
	}
	if got, err := numbers("64,256"); err != nil || len(got) != 2 || got[1] != 256 {
		t.Errorf("numbers %v, %v", got, err)
	}
	for _, bad := range []string{"", "0", "64,x"} {
		if got, err := numbers(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	if knownPhases(strings.Join(allPhases, ",")) != nil || knownPhases("drain,x") == nil {
		t.Error("phases")
	}
	if _, err := moduleVersions(); err != nil {
		t.Error(err)
	}
}

// The two processes that need no server, at work.
func TestFloorArrives(t *testing.T) {
	receiver := startReceiver(t)
	r := &round{
		options: options{phases: phaseDrain, n: 500}, system: systems[0], concurrency: 8, receiver: receiver,
		meter: meter{roles: map[int]string{os.Getpid(): roleClient, receiver.pid: roleReceiver}},
	}
	f := measureFloor(t, r)
	if f[delivered] <= 0 || f[memory] <= 0 {
		t.Errorf("figures of the floor:%s", f)
	}
	sender := newSender(receiver.url, 1)
	if err := sender.send(t.Context(), "cb_0", newPayload()); err != nil {
		t.Fatal(err)
	}
	if err := receiver.once(t.Context()); err == nil {
		t.Error("a second arrival of a callback went unnoticed")
	}
}
