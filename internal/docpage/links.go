package docpage

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	mdLink     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdHeading  = regexp.MustCompile(`(?m)^(#{1,6}) (.+)$`)
	fencedCode = regexp.MustCompile("(?ms)^```.*?^```")
)

// WithoutBlocks returns a page without its fenced blocks.
func WithoutBlocks(text string) string { return fencedCode.ReplaceAllString(text, "") }

// Links returns the targets of the links of a page.
func Links(text string) (links []string) {
	for _, link := range mdLink.FindAllStringSubmatch(WithoutBlocks(text), -1) {
		links = append(links, link[1])
	}
	return links
}

// BrokenLinks returns the relative links of a page that lead nowhere.
func BrokenLinks(project fs.FS, name, text string) (broken []string) {
	for _, link := range Links(text) {
		if !strings.Contains(link, "://") && !Leads(project, name, link) {
			broken = append(broken, link)
		}
	}
	return broken
}

// Leads says whether a relative link of a page leads to a file or directory and, after a #, to a heading in
// it.
func Leads(project fs.FS, from, link string) bool {
	to, anchor, _ := strings.Cut(link, "#")
	if to == "" {
		to = path.Base(from)
	}
	to = path.Join(path.Dir(from), to)
	if _, err := fs.Stat(project, to); err != nil || anchor == "" {
		return err == nil
	}
	text, err := fs.ReadFile(project, to)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(Headings(string(text)), func(h Heading) bool { return h.Anchor == anchor })
}

// A Heading is a heading of a page.
type Heading struct {
	Level  int // from 1
	Anchor string
}

// Headings returns the headings of a page in their order.
func Headings(text string) (all []Heading) {
	for _, h := range mdHeading.FindAllStringSubmatch(WithoutBlocks(text), -1) {
		all = append(all, Heading{Level: len(h[1]), Anchor: slug(h[2])})
	}
	return all
}

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
