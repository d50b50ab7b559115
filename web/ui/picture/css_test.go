package picture_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// luminance is that of WCAG, of a colour written #rrggbb.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// mixed is a colour with a part of another one.
func mixed(hex, with string, share float64) string {
	out := "#"
	for i := 1; i < 7; i += 2 {
		a, _ := strconv.ParseUint(hex[i:i+2], 16, 8)
		b, _ := strconv.ParseUint(with[i:i+2], 16, 8)
		s := strconv.FormatInt(int64(float64(a)*share+float64(b)*(1-share)+.5), 16)
		out += strings.Repeat("0", 2-len(s)) + s
	}
	return out
}

// The colours that pages without their own get can be told from white and from near-black.
func TestColoursHaveContrast(t *testing.T) {
	t.Parallel()
	light, dark, found := strings.Cut(picture.CSS, "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("there are no colours for the dark")
	}
	colour := regexp.MustCompile(`--pic-([a-z0-9]+): var\(--[a-z0-9-]+, (#[0-9a-f]{6})\)`)
	for _, c := range []struct {
		name, css, canvas string
		grounds           []string
	}{
		{"light", light, "#ffffff", []string{"#ffffff", "#f6f7f9"}},
		{"dark", dark, "#121212", []string{"#0d1014", "#14181d"}},
	} {
		n := 0
		for _, m := range colour.FindAllStringSubmatch(c.css, -1) {
			n++
			for _, ground := range c.grounds {
				g := luminance(t, ground)
				ratio := func(hex string) float64 {
					l := luminance(t, hex)
					return (max(l, g) + .05) / (min(l, g) + .05)
				}
				least := 3.0
				if m[1] == "muted" || m[1] == "ink" {
					least = 4.5
				}
				if m[1] == "line" { // separates, and says nothing
					least = 1.1
				}
				if r := ratio(m[2]); r < least {
					t.Errorf("%s, --pic-%s: %.2f on %s, less than %.1f", c.name, m[1], r, ground, least)
				}
				if r := ratio(mixed(m[2], c.canvas, .82)); r < 3 && m[1] != "line" {
					t.Errorf("%s, --pic-%s as a bar: %.2f on %s", c.name, m[1], r, ground)
				}
			}
		}
		if n != 9 {
			t.Errorf("%s has %d colours, not 9", c.name, n)
		}
	}
}

// The policy of the pages lets a sheet load nothing, and one that says more than colours and places would be a surprise.
func TestTheSheetLoadsNothing(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"url(", "@import", "@font-face", "expression", "!important"} {
		if strings.Contains(picture.CSS, word) {
			t.Errorf("the sheet has %s", word)
		}
	}
	if open, end := strings.Count(picture.CSS, "{"), strings.Count(picture.CSS, "}"); open != end {
		t.Errorf("%d braces open and %d close", open, end)
	}
}
