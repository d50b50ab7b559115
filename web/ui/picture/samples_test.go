package picture_test

import (
	"fmt"
	"html/template"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// A sample is one picture of the gallery, which most tests look at.
type sample struct {
	name string
	html template.HTML
}

// evil is what must come out as text, whatever field it was put into.
const evil = `</title></text></svg><script>alert("x")</script>'"&<img src=x onerror=alert(1)> style="x" ` + "\x00\x1b\xff\u202e\uffff"

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

// milliseconds writes a lateness.
func milliseconds(v float64) string {
	switch {
	case v >= 60_000:
		return strconv.FormatFloat(v/60_000, 'g', 3, 64) + " min"
	case v >= 1000:
		return strconv.FormatFloat(v/1000, 'g', 3, 64) + " s"
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " ms"
}

// hours are so many moments, an hour apart.
func hours(n int) []time.Time { return every(n, time.Hour) }

func every(n int, step time.Duration) []time.Time {
	times := make([]time.Time, n)
	for i := range times {
		times[i] = start.Add(time.Duration(i) * step)
	}
	return times
}

// wave is a day's traffic over and over, with noise.
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

func frame(id string, words ...string) picture.Frame {
	f := picture.Frame{ID: id, Title: "Throughput of the last week", Desc: "Accepted and delivered callbacks per second.", NoData: "Nothing was accepted in this time."}
	if len(words) > 0 {
		f.Title, f.Desc, f.NoData = words[0], words[0], words[0]
	}
	return f
}

var clocked = picture.TimeAxis{Location: shanghai, Header: "Time"}

// samples are all pictures with nothing, one thing, as much as usual and with what an enemy would give.
func samples() []sample {
	return slices.Concat(lineSamples(), barSamples(), smallSamples(), oddSamples())
}

// oddSamples are of what cannot be drawn, which is left out or drawn at the bound, and of a quiet frame, whose points do
// not tell their values.
func oddSamples() []sample {
	three := []picture.Series{{Name: "A", Values: []float64{1, 2, 3}}}
	quiet := func(id string) picture.Frame {
		f := frame(id)
		f.Quiet = true
		return f
	}
	return []sample{
		{"lines, below zero", picture.Chart{
			Frame: frame("below"), TimeAxis: clocked, Times: hours(2), Series: []picture.Series{{Name: "A", Values: []float64{-1, 7}}},
		}.HTML()},
		{"lines, one of two is missing", picture.Chart{
			Frame: frame("missing"), TimeAxis: clocked, Times: hours(2), Series: []picture.Series{{Name: "A", Values: []float64{math.NaN(), 7}}},
		}.HTML()},
		{"lines, quiet", picture.Chart{Frame: quiet("quiet-lines"), Times: hours(3), Series: three}.HTML()},
		{"bars, quiet", picture.Chart{Form: picture.Bars, Frame: quiet("quiet-bars"), Times: hours(3), Series: three}.HTML()},
		{"due, quiet", picture.Chart{
			Form: picture.Bars, Frame: quiet("quiet-due"), Times: hours(3), First: &picture.Bar{Value: 5}, Series: three,
		}.HTML()},
		{"spark, wide", picture.Chart{Form: picture.Spark, Series: []picture.Series{{Values: []float64{1, 2}}}, Width: 1 << 40}.HTML()},
		{"progress, no total", picture.Progress{Parts: []picture.Part{{Value: 3}}, Total: math.NaN()}.HTML()},
	}
}

func throughput(id string, n int, step time.Duration) picture.Chart {
	accepted := wave(n, 24*float64(time.Hour)/float64(step), 220, 900, 120)
	delivered := make([]float64, n)
	for i := range delivered {
		delivered[i] = math.Round(accepted[max(i-2, 0)]*9.2) / 10
	}
	return picture.Chart{
		Frame: frame(id), TimeAxis: clocked, Times: every(n, step), Value: perSecond,
		Series: []picture.Series{
			{Name: "Accepted", Values: accepted, Fill: true}, {Name: "Delivered", Values: delivered},
		},
	}
}

func lateness(id string, n int) picture.Chart {
	p50, p95, p99 := wave(n, 24, 6, 5, 4), wave(n, 24, 40, 80, 50), wave(n, 24, 150, 500, 300)
	for i := n / 2; i < n/2+7 && i < n; i++ {
		p99[i] *= 40
		p95[i] *= 9
	}
	for i := n / 4; i < n/4+9 && i < n; i++ {
		p50[i], p95[i], p99[i] = math.NaN(), math.NaN(), math.NaN()
	}
	return picture.Chart{
		Frame: frame(id, "Lateness"), TimeAxis: clocked, Times: hours(n), Value: milliseconds, Scale: picture.Log, Min: 1,
		Series: []picture.Series{{Name: "p50", Values: p50}, {Name: "p95", Values: p95}, {Name: "p99", Values: p99}},
	}
}

func lineSamples() []sample {
	share := wave(168, 24, 99.5, 0, .8)
	for i := 100; i < 112; i++ {
		share[i] -= float64(i-95) * 2.2
	}
	nan := math.NaN()
	huge := throughput("lines-huge", 20_000, time.Minute)
	one := throughput("lines-one", 1, time.Hour)
	return []sample{
		{"lines, nothing", picture.Chart{Frame: frame("lines-empty")}.HTML()},
		{"lines, one point", one.HTML()},
		{"lines, a day by minutes of 30", throughput("lines-day", 48, 30*time.Minute).HTML()},
		{"lines, a week by hours", throughput("lines-week", 168, time.Hour).HTML()},
		{"lines, share", picture.Chart{
			Frame: frame("share", "Success share"), TimeAxis: clocked, Times: hours(168), Value: percent, Height: 150,
			Series: []picture.Series{{Name: "Success share", Values: share, Tone: picture.Good, Fill: true}},
		}.HTML()},
		{"lines, lateness with a gap", lateness("lateness", 168).HTML()},
		{"lines, lateness of an hour", lateness("lateness-short", 12).HTML()},
		{"lines, all zero", picture.Chart{
			Frame: frame("lines-zero"), TimeAxis: clocked, Times: hours(24), Value: perSecond,
			Series: []picture.Series{{Name: "Accepted", Values: make([]float64, 24)}},
		}.HTML()},
		{"lines, single points between gaps", picture.Chart{
			Frame: frame("lines-gaps"), TimeAxis: clocked, Times: hours(12), Series: []picture.Series{
				{Name: "Accepted", Values: []float64{1, nan, 3, nan, nan, 4, 4.5, nan, 2, nan, 6, 5}, Fill: true},
			},
		}.HTML()},
		{"lines, 20,000 points", huge.HTML()},
	}
}

func outcomes(id string, n int, step time.Duration) picture.Chart {
	good, bad := rounded(wave(n, 24, 900, 4000, 700)), rounded(wave(n, 24, 40, 120, 200))
	unknown := rounded(wave(n, 24, 0, 0, 60))
	if n > 30 {
		for i := 20; i < 24; i++ {
			good[i], bad[i] = 500, 2600
		}
		bad[5], good[9], bad[9], unknown[9] = 1, 0, 0, 0
	}
	return picture.Chart{
		Form: picture.Bars, Frame: frame(id, "Attempts by result"), TimeAxis: clocked, Times: every(n, step), Value: count,
		Series: []picture.Series{
			{Name: "Succeeded", Values: good, Tone: picture.Good}, {Name: "Failed", Values: bad, Tone: picture.Bad},
			{Name: "Unknown", Values: unknown, Tone: picture.Muted},
		},
	}
}

func barSamples() []sample {
	coming := rounded(wave(24, 24, 30, 400, 60))
	due := func(id string, overdue float64, counts []float64) picture.Chart {
		return picture.Chart{
			Form: picture.Bars, Frame: frame(id, "Due in the next 24 hours"), TimeAxis: clocked, Times: hours(len(counts)), Step: time.Hour,
			First: &picture.Bar{Name: "Overdue", Value: overdue}, Series: []picture.Series{{Name: "Due", Values: counts}}, Value: count,
		}
	}
	return []sample{
		{"bars, nothing", picture.Chart{Form: picture.Bars, Frame: frame("bars-empty")}.HTML()},
		{"bars, one", outcomes("bars-one", 1, time.Hour).HTML()},
		{"bars, two days by hours", outcomes("bars-days", 48, time.Hour).HTML()},
		{"bars, a week by hours", outcomes("bars-week", 168, time.Hour).HTML()},
		{"bars, a month by days", outcomes("bars-month", 30, 24*time.Hour).HTML()},
		{"bars, 5,000", outcomes("bars-huge", 5000, time.Minute).HTML()},
		{"bars, hostile", picture.Chart{
			Form: picture.Bars, Frame: frame("bars-hostile", evil), TimeAxis: picture.TimeAxis{Header: evil}, Times: append(hours(30), start), Step: -time.Hour, Height: 1 << 30,
			Series: []picture.Series{
				{Name: evil, Values: []float64{math.NaN(), -1, math.Inf(-1), 1e300, 1e15, 3}},
				{Name: evil, Values: []float64{1, 2, 3, 4, 1e15, 5, 6, 7, 8}}, {Name: evil},
			},
			Value: func(float64) string { return evil },
		}.HTML()},
		{"due, nothing", due("due-empty", 3, nil).HTML()},
		{"due, zero", due("due-zero", 0, make([]float64, 12)).HTML()},
		{"due, many", due("due", 180, coming).HTML()},
	}
}

func tiers() picture.Categories {
	names := []string{"15 s", "3 min", "10 min", "30 min", "30 min", "1 h", "2 h", "6 h", "15 h"}
	counts := []float64{12840, 6210, 3377, 2954, 1802, 940, 412, 0, 7}
	c := picture.Categories{Label: "Pending per tier", Value: count}
	for i, name := range names {
		c.Items = append(c.Items, picture.Category{Name: name, Value: counts[i], Href: "/ui/callbacks?tier=" + strconv.Itoa(i+1) + "&state=scheduled"})
	}
	return c
}

func smallSamples() []sample {
	return append([]sample{
		{"categories, nothing", picture.Categories{NoData: "Nothing is pending."}.HTML()},
		{"categories, one", picture.Categories{Items: []picture.Category{{Name: "15 s", Value: 3}}}.HTML()},
		{"categories, many", tiers().HTML()},
		{"spark, nothing", picture.Chart{Form: picture.Spark, Frame: frame("spark-empty")}.HTML()},
		{"spark, one", picture.Chart{Form: picture.Spark, Frame: frame("spark-one"), Series: []picture.Series{{Values: []float64{4}}}}.HTML()},
		{"spark, many", picture.Chart{Form: picture.Spark, Series: []picture.Series{{Values: wave(48, 24, 30, 100, 30)}}}.HTML()},
		{"spark, failures", picture.Chart{Form: picture.Spark, Frame: frame("spark-bad"), Series: []picture.Series{{Values: wave(24, 24, 30, 100, 30)}, {Values: []float64{0, 0, 0, 4, 30, 44, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}}}}.HTML()},
	}, partSamples()...)
}

func redrive(id string, done, failed, left float64) picture.Progress {
	return picture.Progress{
		Frame: frame(id, "Redrive"), Total: done + failed + left, Legend: true,
		Parts: []picture.Part{
			{Name: "Done", Value: done, Tone: picture.Good}, {Name: "Failed", Value: failed, Tone: picture.Bad},
		},
	}
}

func partSamples() []sample {
	return append([]sample{
		{"progress, nothing", picture.Progress{Frame: frame("progress-empty")}.HTML()},
		{"progress, begun", redrive("progress-begun", 2, 1, 49_997).HTML()},
		{"progress, half", redrive("progress-half", 31_200, 840, 17_960).HTML()},
		{"progress, nearly", redrive("progress-nearly", 49_990, 3, 7).HTML()},
		{"progress, all", redrive("progress-all", 50_000, 0, 0).HTML()},
	}, ladderSamples()...)
}

// climb is a ladder on the usual tiers, whose callback stands at a step.
func climb(at int, state picture.State) picture.Ladder {
	waits := []string{"15 s", "3 min", "10 min", "30 min", "30 min", "1 h", "2 h", "6 h", "15 h", ""}
	l := picture.Ladder{Label: "Attempts"}
	for i, wait := range waits {
		s := picture.Step{Number: strconv.Itoa(i + 1), Wait: wait, Label: "to come", Detail: start.Add(time.Duration(i*i) * 7 * time.Minute).Format("2 Jan 15:04:05")}
		switch {
		case i < at:
			s.State, s.Label, s.Href = picture.Failed, "503", "/ui/callbacks/cb_1#attempt-"+s.Number
			if i == 2 {
				s.Manual, s.Label = true, "timeout"
			}
		case i == at:
			s.State = state
			s.Label = map[picture.State]string{picture.Succeeded: "200", picture.Attempting: "attempting", picture.Next: "in 12 min", picture.Failed: "410"}[state]
		case state == picture.Succeeded || state == picture.Failed:
			s.State, s.Label, s.Detail = picture.Never, "not needed", ""
		}
		l.Steps = append(l.Steps, s)
	}
	return l
}

func ladderSamples() []sample {
	long := picture.Ladder{Label: "Attempts", More: func(n int) string { return fmt.Sprintf("… %d more", n) }}
	for i := range 100 {
		s := picture.Step{Number: strconv.Itoa(i + 1), Wait: "15 min", Label: "to come", Detail: "9 Mar 04:15"}
		if i < 40 {
			s.State, s.Label = picture.Failed, "connect"
		} else if i == 40 {
			s.State, s.Label = picture.Next, "in 4 min"
		}
		long.Steps = append(long.Steps, s)
	}
	return []sample{
		{"ladder, nothing", picture.Ladder{}.HTML()},
		{"ladder, one", picture.Ladder{Steps: []picture.Step{{State: picture.Attempting, Number: "1", Label: "attempting"}}}.HTML()},
		{"ladder, waiting", climb(4, picture.Next).HTML()},
		{"ladder, attempting", climb(1, picture.Attempting).HTML()},
		{"ladder, succeeded", climb(5, picture.Succeeded).HTML()},
		{"ladder, dead at once", climb(0, picture.Failed).HTML()},
		{"ladder, 100 steps", long.HTML()},
	}
}
