// Package picture draws charts on the server, as SVG inside of HTML, for pages whose content security policy
// allows neither inline styles nor scripts. A picture is a struct of data and texts; its method HTML gives
// the markup.
//
// It guarantees that the markup is well-formed, has no style attribute, no style element, no script and no
// event handler; that everything which comes from outside is escaped and cut to a length; that the same input
// gives the same bytes; that a chart has a bounded size whatever it is given (about 12 KB at 168 points); and
// that no number breaks it: NaN, infinities and negative numbers are gaps, and no data is an empty frame with
// the text that was given for it. Text keeps its size however narrow the picture is: only the paths are
// stretched.
//
// For readers who cannot see, a chart that stands alone has role="img" with a title and a description and is
// followed by a table of its data (class visually-hidden, at most 25 rows). Pictures that are lists of words
// and numbers anyway (Categories, Ladder) are such lists, and the shapes in them are hidden. A picture
// without a title is decoration. Series differ by dashes and by the mark at their end as well as by colour.
//
// It does not contain a text in any language, does not read a clock, does not fetch or sum up data, and does
// not say what a page looks like around a picture. It holds no state.
package picture

import (
	_ "embed"
	"strconv"
	"time"
)

// CSS is the style sheet that the pictures need. Its colours come from the custom properties --series-1,
// --series-2, --series-3, --good, --bad, --warn, --muted, --line and --ink of the page, and have their own
// for light and dark where the page has none.
//
//go:embed picture.css
var CSS string

// The bounds of what is drawn.
const (
	maxPoints = 300    // of a series; more are thinned
	maxSeries = 3      // in one chart
	maxRows   = 25     // of a table beside a chart: a day by hours, with both ends
	maxHits   = 60     // points that tell their values when they are pointed at
	maxBytes  = 12_000 // above it, a chart's points do not tell their values
	maxItems  = 100    // of a list
	maxName   = 80     // characters of a name, a label or a value
	maxText   = 500    // characters of a title or a description
	biggest   = 1e15   // numbers above are gaps: nothing here counts so far
	smallest  = 1e-9   // positive numbers below are drawn as zero
)

// A Frame is what every chart has around its data.
type Frame struct {
	// ID begins the ids in the markup, and must be unique in its page. What is neither an ASCII letter nor a
	// digit nor a hyphen becomes an underscore. Empty: "picture".
	ID string
	// Title names the chart and Desc says in a sentence what it shows, for those who cannot see it. A chart
	// without a title is hidden from assistive technology.
	Title, Desc string
	// NoData is written into a chart that has nothing to draw.
	NoData string
	// Quiet: points do not tell their values when they are pointed at, however few they are, so that several
	// charts fit into one page.
	Quiet bool
}

// A TimeAxis says how moments are placed and written.
type TimeAxis struct {
	// From and To are the ends of the axis. Zero: those of the data.
	From, To time.Time
	// Location is where the round hours and days are. Nil: UTC.
	Location *time.Location
	// Header is above the moments in the table beside the chart.
	Header string
}

// A Tone is a colour with a meaning, by its name in the style sheet. The zero value is the colour of the
// series' place.
type Tone string

// The tones that are no place's. Second is the colour of the second place, for a part that stands elsewhere.
const (
	Second Tone = "pic-t2"
	Good   Tone = "pic-good"
	Bad    Tone = "pic-bad"
	Warn   Tone = "pic-warn"
	Muted  Tone = "pic-muted"
)

// class is the name of a tone in the style sheet; place counts from 0.
func (t Tone) class(place int) string {
	switch {
	case t != "":
		return string(t)
	case place < maxSeries:
		return "pic-t" + strconv.Itoa(place+1)
	}
	return string(Muted)
}

// A Series is one row of values, each at the moment of the same place in the chart's times.
type Series struct {
	// Name is written in the legend, in the table and where a point is pointed at.
	Name string
	// Values are gaps where they are NaN, infinite, negative or above 1e15, and where there are fewer than
	// times.
	Values []float64
	Tone   Tone
	// Fill colours the area below a line faintly.
	Fill bool
}

// drawable says whether a value can be drawn; what cannot is a gap.
func drawable(v float64) bool { return v >= 0 && v <= biggest }

// drawn is a value as it is drawn, and whether it can be.
func drawn(v float64) (float64, bool) {
	if !drawable(v) {
		return 0, false
	}
	if v < smallest {
		return 0, true
	}
	return v, true
}

// at is the value of a place, and whether there is one.
func (s Series) at(i int) (float64, bool) {
	if i >= len(s.Values) {
		return 0, false
	}
	return drawn(s.Values[i])
}
