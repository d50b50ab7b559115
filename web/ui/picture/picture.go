// Package picture draws charts on the server, as SVG in HTML. The charts work under a content security policy
// without inline styles and scripts. A picture is a struct of data and texts; its method HTML returns the
// markup.
//
// The package guarantees:
//   - The markup is well-formed. It has no style attribute or element, no script and no event handler.
//   - All input texts are escaped and cut.
//   - The same input gives the same bytes.
//   - The size of a chart is bounded for any input (about 12 KB at 60 points).
//   - NaN, infinities and negative numbers are gaps. Without data the frame is empty
//     and shows NoData.
//   - Text keeps its size on a narrow page. Only the paths are stretched.
//
// A chart shows the values of a point while the pointer or the focus is on it: the points are radio buttons
// with the values as their names. For screen readers a chart has role="img", a title and a description.
// Categories and Ladder are HTML lists, and their shapes are hidden from screen readers. A picture without a
// title is decoration. Series differ in colour, dashes and the mark at the end of the line.
//
// The package contains no texts of a language, reads no clock, fetches no data and holds no state.
package picture

import (
	_ "embed"
	"strconv"
	"time"
)

// CSS is the style sheet of the pictures. It takes its colours from the page's custom properties --series-1,
// --series-2, --series-3, --good, --bad, --warn, --muted, --line and --ink. It has defaults for light and
// dark.
//
//go:embed picture.css
var CSS string

// Bounds.
const (
	maxPoints = 60   // points of a series; more are merged
	maxSeries = 3    // series of a chart
	maxItems  = 100  // items of a list
	maxName   = 80   // characters of a name, a label or a value
	maxShort  = 32   // the same for a point
	maxText   = 500  // characters of a title or a description
	biggest   = 1e15 // numbers above it are gaps
	smallest  = 1e-9 // positive numbers below it are drawn as zero
)

// A Frame is the part that all charts share.
type Frame struct {
	// ID is the prefix of the ids in the markup. It must be unique in its page. Characters other than ASCII
	// letters, digits and hyphens become underscores. Empty means "picture".
	ID string
	// Title and Desc describe the chart for screen readers. A chart without a title is hidden from them.
	Title, Desc string
	// NoData is the text of a chart without data.
	NoData string
}

// A TimeAxis configures the time axis of a chart.
type TimeAxis struct {
	// From and To are the ends of the axis. Zero means the ends of the data.
	From, To time.Time
	// Location is the time zone of the labels and of round times. Nil means UTC.
	Location *time.Location
}

// A Tone is a colour with a meaning. It is the class name in the style sheet. The zero value is the default
// colour by position.
type Tone string

// The tones. Second is the default colour of the second position, for a part at another position.
const (
	Second Tone = "pic-t2"
	Good   Tone = "pic-good"
	Bad    Tone = "pic-bad"
	Warn   Tone = "pic-warn"
	Muted  Tone = "pic-muted"
)

// class returns the class name of a tone. place is the position, counted from 0.
func (t Tone) class(place int) string {
	switch {
	case t != "":
		return string(t)
	case place < maxSeries:
		return "pic-t" + strconv.Itoa(place+1)
	}
	return string(Muted)
}

// A Series is one row of values. Values[i] belongs to Chart.Times[i].
type Series struct {
	// Name is shown in the legend and beside the values of a point.
	Name string
	// Values that are NaN, infinite, negative or above 1e15 are gaps. Missing values are gaps too.
	Values []float64
	Tone   Tone
	// Fill colours the area below a line.
	Fill bool
}

// drawable reports whether a value can be drawn. Other values are gaps.
func drawable(v float64) bool { return v >= 0 && v <= biggest }

// plotted returns the value to draw. ok is false for a gap.
func plotted(v float64) (float64, bool) {
	if !drawable(v) {
		return 0, false
	}
	if v < smallest {
		return 0, true
	}
	return v, true
}

// at returns the value at index i. ok is false for a gap.
func (s Series) at(i int) (float64, bool) {
	if i >= len(s.Values) {
		return 0, false
	}
	return plotted(s.Values[i])
}
