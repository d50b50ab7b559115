package picture

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// elements and attributes are all names that pictures may contain. None of them can run, load or style
// anything.
var (
	elements = strings.Fields("figure div ul ol li a b p span table caption thead tbody tr th td svg g " +
		"path line rect circle text title desc label input")
	// ofNumbers are the attributes that hold only lengths, paths and transforms.
	ofNumbers = strings.Fields("x y x1 x2 y1 y2 cx cy r rx d width height viewBox stroke-width " +
		"stroke-dasharray pathLength transform")
	attributes = append(strings.Fields("id class role aria-labelledby aria-hidden aria-label aria-current "+
		"scope href fill overflow preserveAspectRatio type name"), ofNumbers...)
	// numeric matches their values. A number has at most one decimal.
	numeric = regexp.MustCompile(`^(?:[MlmvVhHaz ,%()]|translate|rotate|-?(?:\d{1,7}(?:\.\d)?|\.\d))+$`)
)

// parse parses markup as XML, which is strict, and calls look for every element.
func parse(t *testing.T, markup template.HTML, look func(path []string, e xml.StartElement)) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader("<root>" + string(markup) + "</root>"))
	var path []string
	for {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, markup)
		}
		switch token := token.(type) {
		case xml.StartElement:
			path = append(path, token.Name.Local)
			if len(path) > 1 && look != nil {
				look(path, token)
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.Comment, xml.Directive, xml.ProcInst:
			t.Errorf("unexpected %T", token)
		}
	}
}

func attr(e xml.StartElement, name string) (string, bool) {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value, true
		}
	}
	return "", false
}

// checkMarkup checks what must hold for every picture with any input.
func checkMarkup(t *testing.T, markup template.HTML) {
	t.Helper()
	ids, refs := map[string]bool{}, []string{}
	parse(t, markup, func(path []string, e xml.StartElement) {
		if !slices.Contains(elements, e.Name.Local) {
			t.Errorf("unexpected element %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			name := a.Name.Local
			if !slices.Contains(attributes, name) {
				t.Errorf("unexpected attribute %s=%q of %s", name, a.Value, e.Name.Local)
			}
			isEmptyPath := name == "d" && a.Value == ""
			if slices.Contains(ofNumbers, name) && !numeric.MatchString(a.Value) && !isEmptyPath {
				t.Errorf("attribute %s=%q of %s is not numeric", name, a.Value, e.Name.Local)
			}
			if name == "href" && !regexp.MustCompile(`^(?:[/?#]|https?:|[^:]+$)`).MatchString(a.Value) {
				t.Errorf("unexpected link to %q", a.Value)
			}
		}
		if id, ok := attr(e, "id"); ok {
			if ids[id] {
				t.Errorf("duplicate id %q", id)
			}
			ids[id] = true
		}
		labelled, _ := attr(e, "aria-labelledby")
		refs = append(refs, strings.Fields(labelled)...)
		if e.Name.Local == "svg" && !slices.Contains(path[:len(path)-1], "svg") {
			role, _ := attr(e, "role")
			hidden, _ := attr(e, "aria-hidden")
			_, label := attr(e, "aria-label")
			if !(role == "img" && labelled != "") && !(role == "group" && label) && hidden != "true" {
				t.Errorf("an svg has no name and is not hidden: %v", e.Attr)
			}
		}
	})
	for _, ref := range refs {
		if !ids[ref] {
			t.Errorf("aria-labelledby names the missing id %q", ref)
		}
	}
	for _, r := range string(markup) {
		if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' {
			t.Errorf("unexpected character %U", r)
		}
	}
	tree, err := html.ParseFragment(strings.NewReader(string(markup)),
		&html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range tree {
		for n := range n.Descendants() {
			if n.Type == html.ElementNode && !slices.Contains(elements, n.Data) {
				t.Errorf("an HTML parser finds the element %s", n.Data)
			}
		}
	}
}

func TestMarkupIsValid(t *testing.T) {
	t.Parallel()
	ids := map[string]string{}
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			checkMarkup(t, s.of.HTML())
		})
		parse(t, s.of.HTML(), func(_ []string, e xml.StartElement) {
			if id, ok := attr(e, "id"); ok {
				if ids[id] != "" {
					t.Errorf("id %q is in %s and in %s", id, ids[id], s.name)
				}
				ids[id] = s.name
			}
		})
	}
}

func TestEveryClassHasAStyleAndEveryStyleAClass(t *testing.T) {
	t.Parallel()
	styled, used := map[string]bool{}, map[string]bool{"pic-x2": true}
	for _, m := range regexp.MustCompile(`\.((?:pic|visually)[a-z0-9-]*)`).FindAllStringSubmatch(CSS, -1) {
		styled[m[1]] = true
	}
	for _, s := range samples() {
		parse(t, s.of.HTML(), func(_ []string, e xml.StartElement) {
			classes, _ := attr(e, "class")
			for _, class := range strings.Fields(classes) {
				used[class] = true
			}
		})
	}
	delete(used, "row") // a class of the gallery page
	plain := strings.Fields("pic-g1 pic-d1 pic-x1")
	for class := range used {
		if !styled[class] && !slices.Contains(plain, class) {
			t.Errorf("class %s has no style", class)
		}
	}
	for class := range styled {
		if !used[class] {
			t.Errorf("no picture has the class %s", class)
		}
	}
}

// TestPictureSizesAreBounded: a page holds a few charts of a week by hours and must stay small.
func TestPictureSizesAreBounded(t *testing.T) {
	t.Parallel()
	for _, s := range samples() {
		most := 13_000
		if strings.Contains(s.name, "hostile") || strings.Contains(s.name, "20,000") ||
			strings.Contains(s.name, "5,000") {
			most = 36_000
		}
		if n := len(s.of.HTML()); n > most {
			t.Errorf("%s has %d bytes, more than %d", s.name, n, most)
		}
	}
	bounds := map[string]struct {
		of   shape
		most int
	}{
		"lines":      {lateness("x", 168), 12_000},
		"bars":       {outcomes("x", 168, 1e9*3600), 13_000},
		"categories": {Categories{Items: make([]Category, 10_000)}, 25_000},
		"progress":   {Progress{Parts: make([]Part, 10_000)}, 1000},
		"ladder":     {Ladder{Steps: make([]Step, 10_000)}, 6000},
		"track": {Track{Rows: slices.Repeat([][]Mark{slices.Repeat([]Mark{{At: start, State: Failed,
			Title: hostile, Href: "/x"}}, 100)}, 50)}, 40_000},
		"spark": {Chart{Form: Spark, Series: []Series{{Values: wave(10_000, 24, 1, 100, 90)}}}, 2500},
	}
	for name, b := range bounds {
		if n := len(b.of.HTML()); n > b.most {
			t.Errorf("%s has %d bytes, more than %d", name, n, b.most)
		}
	}
}

// TestPointsShowTheirValues: each point that is drawn has a radio button with its values.
func TestPointsShowTheirValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		of     shape
		points int
	}{
		{"a week", lateness("x", 168), 56},
		{"a day of hours", throughput("x", 24, 3600e9), 24},
		{"an hour", throughput("x", 60, 60e9), 60},
		{"bars", outcomes("x", 168, 3600e9), 56},
		{"nothing", Chart{Frame: frame("x")}, 0},
	} {
		points := 0
		parse(t, c.of.HTML(), func(_ []string, e xml.StartElement) {
			if e.Name.Local == "label" {
				points++
			}
		})
		if points != c.points {
			t.Errorf("%s: %d points have values, want %d", c.name, points, c.points)
		}
	}
}

func TestLinksAreLocalOrHTTP(t *testing.T) {
	t.Parallel()
	for href, want := range map[string]bool{
		"/ui/callbacks?tier=1": true, "?tier=1": true, "#x": true, "https://example.com/": true,
		"javascript:alert(1)": false, " JavaScript:x": false,
		"data:text/html,x": false, "vbscript:x": false, "/a\x00b": false, "java\tscript:x": false, "": false,
		strings.Repeat("/", 3000): false,
	} {
		c := Categories{Items: []Category{{Name: "15 s", Value: 1, Href: href}}}
		if got := strings.Contains(string(c.HTML()), "<a "); got != want {
			t.Errorf("link for %q: %v, want %v", href, got, want)
		}
	}
}

// TestGallery compares the markup of the small samples with testdata/gallery.html.
func TestGallery(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, s := range samples() {
		if drawn := s.of.HTML(); len(drawn) < 3000 {
			fmt.Fprintf(&all, "<!-- %s -->\n%s\n", s.name, drawn)
		}
	}
	transcript.File(t, "testdata/gallery.html", func(*testing.T, string) string { return all.String() })
}
