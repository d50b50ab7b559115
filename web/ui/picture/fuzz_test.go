package picture

import (
	"encoding/binary"
	"html/template"
	"math"
	"strings"
	"testing"
	"time"
)

// numbers decodes bytes into numbers: integers, huge numbers, infinities and NaN.
func numbers(data []byte) []float64 {
	var all []float64
	for len(data) > 0 {
		kind := data[0]
		data = data[1:]
		switch {
		case kind < 128:
			all = append(all, float64(kind))
		case kind < 140:
			all = append(all, math.NaN())
		case kind < 150:
			all = append(all, math.Inf(int(kind)%2*2-1))
		case len(data) >= 8:
			all = append(all, math.Float64frombits(binary.LittleEndian.Uint64(data)))
			data = data[8:]
		}
	}
	return all
}

// FuzzCharts draws the same numbers and the same text in every kind of chart. It checks that hostile texts
// are escaped in every field.
func FuzzCharts(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 5, 6, 7, 8}, []byte{9, 130, 9, 141}, int64(1_772_900_000), int64(3600),
		uint8(200), "p50")
	f.Add([]byte{0, 0, 0}, []byte{}, int64(0), int64(0), uint8(0), "")
	f.Add([]byte{255, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 239, 127}, []byte{255},
		int64(1<<62), int64(-1), uint8(7), hostile)
	f.Add([]byte{1, 2, 3}, []byte{4, 5, 6}, int64(1_772_900_000), int64(3600), uint8(200), hostile)
	f.Fuzz(func(t *testing.T, a, b []byte, from, step int64, height uint8, text string) {
		if len(a)+len(b) > 4000 {
			return
		}
		first, second := numbers(a), numbers(b)
		times := make([]time.Time, len(first))
		for i := range times {
			times[i] = time.Unix(from+int64(i)*step, int64(i))
		}
		frame := Frame{ID: text, Title: text, Desc: text, NoData: text}
		l := Chart{
			Frame: frame, TimeAxis: TimeAxis{Location: shanghai}, Times: times,
			Series: []Series{{Name: text, Values: first, Fill: true},
				{Name: text, Values: second, Tone: []Tone{"", Bad}[height%2]}},
			Height: int(height), Scale: Scale(height % 2),
		}
		if len(second) > 0 {
			l.Min = second[0]
		}
		lines := l.HTML()
		if len(lines) > 40_000 {
			t.Errorf("the chart has %d bytes, more than 40,000", len(lines))
		}
		bars := Chart{
			Form: Bars, Frame: frame, Times: times, Step: time.Duration(step),
			Series: []Series{{Name: text, Values: first}, {Name: text, Values: second}}, Height: int(height),
		}
		due := bars
		due.First = &Bar{Name: text, Value: float64(from)}
		bars.Value = func(float64) string { return text }
		categories := Categories{Label: text, NoData: text, Value: bars.Value}
		spark := Chart{Form: Spark, Frame: frame, Series: bars.Series, Width: int(step), Height: int(from)}
		progress := Progress{Frame: frame, Legend: true}
		for _, v := range first {
			progress.Total = v
			progress.Parts = append(progress.Parts, Part{Name: text, Value: v})
			categories.Items = append(categories.Items, Category{Name: text, Value: v, Href: text})
		}
		for _, h := range []template.HTML{lines, bars.HTML(), due.HTML(), spark.HTML(), progress.HTML(),
			categories.HTML()} {
			checkMarkup(t, h)
		}
	})
}

func FuzzLadder(f *testing.F) {
	f.Add(100, 41, uint8(3), hostile)
	f.Add(9, 8, uint8(1), "410")
	f.Fuzz(func(t *testing.T, steps, at int, state uint8, text string) {
		l := Ladder{Label: text, Steps: make([]Step, min(max(steps, 0), 500))}
		for i := range l.Steps {
			if i == at {
				l.Steps[i].State = []State{ToCome, Succeeded, Failed, Attempting, Next}[state%5]
			}
			step := &l.Steps[i]
			step.Number, step.Label, step.Detail, step.Wait, step.Href = text, text, text, text, text
		}
		visible, hidden := 0, 0
		l.More = func(n int) string {
			if n < 2 {
				t.Errorf("a gap hides %d steps, want at least 2", n)
			}
			hidden += n
			visible--
			return text
		}
		h := l.HTML()
		checkMarkup(t, h)
		items := strings.Count(string(h), "<li ")
		visible += items
		if visible+hidden != len(l.Steps) {
			t.Errorf("%d steps are visible and %d hidden, want %d in all", visible, hidden, len(l.Steps))
		}
		if items > 20 {
			t.Errorf("the list has %d items, more than 20", items)
		}
	})
}
