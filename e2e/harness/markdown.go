package harness

import (
	"strings"
	"unicode/utf8"
)

// ListItem formats an item of a Markdown list, with lines of at most 110 columns.
func ListItem(text string) string {
	var b strings.Builder
	line := "-"
	for _, word := range strings.Fields(text) {
		if utf8.RuneCountInString(line+" "+word) > 110 {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return b.String() + line
}
