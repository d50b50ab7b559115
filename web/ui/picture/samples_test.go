package picture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A shape is any picture.
type shape interface{ HTML() template.HTML }

// A sample is one picture of the gallery. Most tests use the gallery.
type sample struct {
	name string
	of   shape
}

// hostile is a text that must be escaped in every field.
const hostile = `</title></text></svg><script>alert("x")</script>'"&<img src=x onerror=alert(1)> style="x" ` +
	"\x00\x1b\xff\u202e\uffff"

var (
	shanghai = time.FixedZone("CST", 8*3600)
	start    = time.Date(2026, 3, 8, 4, 0, 0, 0, shanghai)
)

func count(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func perSecond(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + "/s" }
func percent(v float64) string   { return strconv.FormatFloat(v, 'f', -1, 64) + " %" }

// milliseconds formats a duration in milliseconds.
func milliseconds(v float64) string {
	switch {
	case v >= 60_000:
		return strconv.FormatFloat(v/60_000, 'g', 3, 64) + " min"
	case v >= 1000:
		return strconv.FormatFloat(v/1000, 'g', 3, 64) + " s"
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " ms"
}

// hours returns n times at distances of an hour.
func hours(n int) []time.Time { return every(n, time.Hour) }

func every(n int, step time.Duration) []time.Time {
	times := make([]time.Time, n)
	for i := range times {
		times[i] = start.Add(time.Duration(i) * step)
	}
	return times
}

// wave returns the traffic of days with noise.
func wave(n int, perDay, base, height, noise float64) []float64 {
	r := rand.New(rand.NewPCG(1, uint64(base*7+height)))
	values := make([]float64, n)
	for i := range values {
		day := (1 - math.Cos(float64(i)/perDay*2*math.Pi)) / 2
		values[i] = math.Round((base+height*day+noise*(r.Float64()-.5))*10) / 10
	}
	return values
}

func rounded(values []float64) []float64 {
	for i := range values {
		values[i] = math.Round(max(values[i], 0))
	}
	return values
}

func frame(id string, words ...string) Frame {
	f := Frame{ID: id, Title: "Throughput of the last week",
		Desc: "Accepted and delivered callbacks per second.", NoData: "Nothing was accepted in this time."}
	if len(words) > 0 {
		f.Title, f.Desc, f.NoData = words[0], words[0], words[0]
	}
	return f
}

var clocked = TimeAxis{Location: shanghai}

// samples returns pictures of each kind: without data, with one value, with usual data and with hostile data.
func samples() []sample {
	return slices.Concat(lineSamples(), barSamples(), sparkSamples(),
		[]sample{{"track, hostile", denseTrack()}},
		writtenSamples(), oddSamples())
}

// oddSamples returns pictures with values that cannot be drawn or that exceed a bound.
func oddSamples() []sample {
	three := []Series{{Name: "A", Values: []float64{1, 2, 3}}}
	return []sample{
		{"lines, below zero", Chart{
			Frame: frame("below"), TimeAxis: clocked, Times: hours(2),
			Series: []Series{{Name: "A", Values: []float64{-1, 7}}},
		}},
		{"lines, one of two is missing", Chart{
			Frame: frame("missing"), TimeAxis: clocked, Times: hours(2),
			Series: []Series{{Name: "A", Values: []float64{math.NaN(), 7}}},
		}},
		{"lines, three", Chart{Frame: frame("three-lines"), Times: hours(3), Series: three}},
		{"bars, three", Chart{Form: Bars, Frame: frame("three-bars"), Times: hours(3), Series: three}},
		{"due, no name", Chart{
			Form: Bars, Frame: frame("due-no-name"), Times: hours(3), First: &Bar{Value: 5}, Series: three,
		}},
		{"spark, wide", Chart{Form: Spark, Series: []Series{{Values: []float64{1, 2}}}, Width: 1 << 40}},
		{"ladder, 100 steps", longLadder()},
		{"progress, no total", Progress{Parts: []Part{{Value: 3}}, Total: math.NaN()}},
	}
}

func throughput(id string, n int, step time.Duration) Chart {
	accepted := wave(n, 24*float64(time.Hour)/float64(step), 220, 900, 120)
	delivered := make([]float64, n)
	for i := range delivered {
		delivered[i] = math.Round(accepted[max(i-2, 0)]*9.2) / 10
	}
	return Chart{
		Frame: frame(id), TimeAxis: clocked, Times: every(n, step), Value: perSecond,
		Series: []Series{
			{Name: "Accepted", Values: accepted, Fill: true}, {Name: "Delivered", Values: delivered},
		},
	}
}

func lateness(id string, n int) Chart {
	p50, p95, p99 := wave(n, 24, 6, 5, 4), wave(n, 24, 40, 80, 50), wave(n, 24, 150, 500, 300)
	for i := n / 2; i < n/2+7 && i < n; i++ {
		p99[i] *= 40
		p95[i] *= 9
	}
	for i := n / 4; i < n/4+9 && i < n; i++ {
		p50[i], p95[i], p99[i] = math.NaN(), math.NaN(), math.NaN()
	}
	return Chart{
		Frame: frame(id, "Lateness"), TimeAxis: clocked, Times: hours(n), Value: milliseconds, Scale: Log,
		Min:    1,
		Series: []Series{{Name: "p50", Values: p50}, {Name: "p95", Values: p95}, {Name: "p99", Values: p99}},
	}
}

func lineSamples() []sample {
	share := wave(168, 24, 99.5, 0, .8)
	for i := 100; i < 112; i++ {
		share[i] -= float64(i-95) * 2.2
	}
	nan := math.NaN()
	return []sample{
		{"lines, nothing", Chart{Frame: frame("lines-empty")}},
		{"lines, one point", throughput("lines-one", 1, time.Hour)},
		{"lines, a day by minutes of 30", throughput("lines-day", 48, 30*time.Minute)},
		{"lines, a week by hours", throughput("lines-week", 168, time.Hour)},
		{"lines, share", Chart{
			Frame: frame("share", "Success share"), TimeAxis: clocked, Times: hours(168), Value: percent,
			Height: 150,
			Series: []Series{{Name: "Success share", Values: share, Tone: Good, Fill: true}},
		}},
		{"lines, lateness with a gap", lateness("lateness", 168)},
		{"lines, lateness of an hour", lateness("lateness-short", 12)},
		{"lines, all zero", Chart{
			Frame: frame("lines-zero"), TimeAxis: clocked, Times: hours(24), Value: perSecond,
			Series: []Series{{Name: "Accepted", Values: make([]float64, 24)}},
		}},
		{"lines, single points between gaps", Chart{
			Frame: frame("lines-gaps"), TimeAxis: clocked, Times: hours(12), Series: []Series{
				{Name: "Accepted", Values: []float64{1, nan, 3, nan, nan, 4, 4.5, nan, 2, nan, 6, 5},
					Fill: true},
			},
		}},
		{"lines, 20,000 points", throughput("lines-huge", 20_000, time.Minute)},
	}
}

func outcomes(id string, n int, step time.Duration) Chart {
	good, bad := rounded(wave(n, 24, 900, 4000, 700)), rounded(wave(n, 24, 40, 120, 200))
	unknown := rounded(wave(n, 24, 0, 0, 60))
	if n > 30 {
		for i := 20; i < 24; i++ {
			good[i], bad[i] = 500, 2600
		}
		bad[5], good[9], bad[9], unknown[9] = 1, 0, 0, 0
	}
	return Chart{
		Form: Bars, Frame: frame(id, "Attempts by result"), TimeAxis: clocked, Times: every(n, step),
		Value: count,
		Series: []Series{
			{Name: "Succeeded", Values: good, Tone: Good}, {Name: "Failed", Values: bad, Tone: Bad},
			{Name: "Unknown", Values: unknown, Tone: Muted},
		},
	}
}

func barSamples() []sample {
	coming := rounded(wave(24, 24, 30, 400, 60))
	due := func(id string, overdue float64, counts []float64) Chart {
		return Chart{
			Form: Bars, Frame: frame(id, "Due in the next 24 hours"), TimeAxis: clocked,
			Times: hours(len(counts)), Step: time.Hour,
			First: &Bar{Name: "Overdue", Value: overdue}, Series: []Series{{Name: "Due", Values: counts}},
			Value: count,
		}
	}
	return []sample{
		{"bars, nothing", Chart{Form: Bars, Frame: frame("bars-empty")}},
		{"bars, one", outcomes("bars-one", 1, time.Hour)},
		{"bars, two days by hours", outcomes("bars-days", 48, time.Hour)},
		{"bars, a week by hours", outcomes("bars-week", 168, time.Hour)},
		{"bars, a month by days", outcomes("bars-month", 30, 24*time.Hour)},
		{"bars, 5,000", outcomes("bars-huge", 5000, time.Minute)},
		{"bars, hostile", Chart{
			Form: Bars, Frame: frame("bars-hostile", hostile),
			Times: append(hours(30), start), Step: -time.Hour, Height: 1 << 30,
			Series: []Series{
				{Name: hostile, Values: []float64{math.NaN(), -1, math.Inf(-1), 1e300, 1e15, 3}},
				{Name: hostile, Values: []float64{1, 2, 3, 4, 1e15, 5, 6, 7, 8}}, {Name: hostile},
			},
			Value: func(float64) string { return hostile },
		}},
		{"due, nothing", due("due-empty", 3, nil)},
		{"due, zero", due("due-zero", 0, make([]float64, 12))},
		{"due, many", due("due", 180, coming)},
	}
}

// denseTrack is a track with too many marks for links.
func denseTrack() Track {
	var row []Mark
	for i := range 80 {
		row = append(row, Mark{At: start.Add(time.Duration(i) * time.Minute), State: Failed, Title: hostile})
	}
	return Track{Location: shanghai, Rows: [][]Mark{row, {{At: start, State: Succeeded}}}}
}

func sparkSamples() []sample {
	traffic := Series{Values: wave(48, 24, 30, 100, 30)}
	attempts := Series{Values: wave(24, 24, 30, 100, 30)}
	failures := Series{Values: []float64{0, 0, 0, 4, 30, 44, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}}
	return []sample{
		{"spark, many", Chart{Form: Spark, Series: []Series{traffic}}},
		{"spark, failures", Chart{Form: Spark, Frame: frame("spark-bad"),
			Series: []Series{attempts, failures}}},
	}
}

// writtenSamples returns the samples of testdata/samples.json. The name of a sample begins with its kind.
func writtenSamples() (all []sample) {
	text, err := os.ReadFile("testdata/samples.json")
	var rows []struct {
		Name string
		Of   json.RawMessage
	}
	if err := errors.Join(err, json.Unmarshal(text, &rows)); err != nil {
		panic(err)
	}
	for _, row := range rows {
		kind, _, _ := strings.Cut(row.Name, ",")
		of := map[string]shape{
			"categories": &Categories{Value: count}, "spark": &Chart{Form: Spark, Frame: frame("")},
			"progress": &Progress{Frame: frame("")}, "ladder": &Ladder{},
			"track": &Track{}, "phases": &Phases{},
		}[kind]
		d := json.NewDecoder(bytes.NewReader(row.Of))
		d.DisallowUnknownFields()
		if err := d.Decode(of); err != nil {
			panic(fmt.Errorf("%s: %w", row.Name, err))
		}
		all = append(all, sample{row.Name, of})
	}
	return all
}

func longLadder() Ladder {
	long := Ladder{Label: "Attempts", More: func(n int) string { return fmt.Sprintf("… %d more", n) }}
	for i := range 100 {
		s := Step{Number: strconv.Itoa(i + 1), Wait: "15 min", Label: "to come", Detail: "9 Mar 04:15"}
		if i < 40 {
			s.State, s.Label = Failed, "connect"
		} else if i == 40 {
			s.State, s.Label = Next, "in 4 min"
		}
		long.Steps = append(long.Steps, s)
	}
	return long
}
