package rule

import (
	"math/big"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

func TestDecimalsCompare(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/decimals.txt", func(line string) string {
		i := strings.LastIndexByte(line, ' ')
		a, isNumber := parseDecimal(line[:i])
		b, _ := parseDecimal(line[i+1:])
		if !isNumber {
			return "no number"
		}
		if a.compare(b) != -b.compare(a) {
			t.Errorf("%s: %d, and in reverse %d", line, a.compare(b), b.compare(a))
		}
		return [...]string{"less", "equal", "greater"}[1+a.compare(b)]
	})
}

func FuzzDecimal(f *testing.F) {
	f.Add("1.50", "15e-1")
	f.Add("-0", "00.0")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := parseDecimal(a)
		y, okY := parseDecimal(b)
		if !okX || !okY || max(x.point, -x.point, y.point, -y.point) > 1000 {
			return // math/big would expand them
		}
		p, okP := new(big.Rat).SetString(a)
		q, okQ := new(big.Rat).SetString(b)
		if !okP || !okQ || x.compare(y) != p.Cmp(q) {
			t.Fatalf("%s against %s: %d", a, b, x.compare(y))
		}
	})
}

// FuzzPointer checks that the steps of a pointer, joined as RFC 6901 says, give the pointer again.
func FuzzPointer(f *testing.F) {
	for _, s := range []string{"", "/", "/a/b~1c/~0", "/~2", "/~01", "a", "//", "/0", "/a~"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, why := parsePointer(text)
		if why != "" {
			return
		}
		var written strings.Builder
		for _, step := range p.steps {
			written.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
		}
		if written.String() != text {
			t.Errorf("%q has the steps %q, which give %q", text, p.steps, &written)
		}
	})
}

// FuzzXML checks the tree of elements, its bounds, and that the cost is proportional to the text. A valid
// path finds the elements that have it.
func FuzzXML(f *testing.F) {
	for _, s := range [][2]string{
		{"<xml><return_code><![CDATA[SUCCESS]]></return_code></xml>", "/xml/return_code"},
		{`<a:b c="d"/>`, "/b"}, {"<a><b>1</b><b>2</b></a>", "/a/b"},
		{"<!DOCTYPE a><a/>", "/a"}, {"<a>&amp;&#65;<!-- --><?p?></a>", "/a"}, {"<a></b>", "/"},
		{strings.Repeat("<a>", 300), "/a/a"}, {"<a/><b/>", "/a/"},
	} {
		f.Add([]byte(s[0]), s[1])
	}
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		spent := 0
		tree, why := parse.ReadXML(text, func(steps int) bool { spent += steps; return true })
		// The shortest token has one byte, and each token costs TokenSteps in addition to its bytes.
		if most := (parse.TokenSteps + 1) * (2*len(text) + 2); spent > most {
			t.Errorf("%q costs %d steps, more than %d", text, spent, most)
		}
		if why != "" {
			return
		}
		for i, e := range tree.Elements {
			switch {
			case i == 0 && (e.Parent != -1 || e.Depth != 0):
				t.Fatalf("the root of %q is %+v", text, e)
			case i > 0 && (e.Parent < 0 || e.Parent >= i):
				t.Fatalf("element %d of %q is %+v", i, text, e)
			case i > 0 && (e.Depth != tree.Elements[e.Parent].Depth+1 || tree.Elements[e.Parent].Leaf):
				t.Fatalf("element %d of %q is %+v", i, text, e)
			case e.Depth > parse.MaxXMLDepth || e.End < 0 || e.End > int64(len(text)):
				t.Fatalf("element %d of %q is %+v", i, text, e)
			}
		}
		p, why := parseXMLPath(path)
		if why != "" {
			return
		}
		want := 0
		for i := range tree.Elements {
			if pathTo(tree, i) == path {
				want++
			}
		}
		if _, got := (&xmlPath{p}).find(tree); got != want {
			t.Errorf("%q has %d elements at %s, %d are found", text, want, path, got)
		}
	})
}

// pathTo returns the path of an element in the form of parseXMLPath.
func pathTo(tree *parse.XML, i int) string {
	if i < 0 {
		return ""
	}
	return pathTo(tree, tree.Elements[i].Parent) + "/" + tree.Elements[i].Name
}
