package api_test

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// maxColumns is the maximum length of a generated line of the document.
const maxColumns = 110

// writeYAML writes a key and its value in flow style on one line. It breaks a longer line: a mapping gets one
// line for each member, a string is folded, and a list continues on the next line.
func writeYAML(b *strings.Builder, indent, key, value string) {
	line := indent + key + ": " + value
	if utf8.RuneCountInString(line) <= maxColumns {
		b.WriteString(line + "\n")
		return
	}
	switch value[0] {
	case '{':
		b.WriteString(indent + key + ":\n")
		for _, member := range members(value[1 : len(value)-1]) {
			name, of, _ := strings.Cut(member, ": ")
			writeYAML(b, indent+"  ", name, of)
		}
	case '"':
		var text string
		if err := json.Unmarshal([]byte(value), &text); err != nil {
			panic(err)
		}
		b.WriteString(indent + key + ": >-\n")
		writeWrapped(b, indent+"  ", indent+"  ", text)
	default:
		writeWrapped(b, indent, indent+"  ", key+": "+value)
	}
}

// writeWrapped breaks a text at spaces. All lines except the first begin with next.
func writeWrapped(b *strings.Builder, first, next, text string) {
	line := first
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= maxColumns:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = next + word
		}
	}
	b.WriteString(line + "\n")
}

// members splits the inside of a mapping in flow style at its commas. It ignores commas inside of strings,
// lists and other mappings.
func members(text string) []string {
	var all []string
	depth, quoted, start := 0, false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		case c == ',' && depth == 0:
			all = append(all, strings.TrimSpace(text[start:i]))
			start = i + 1
		}
	}
	return append(all, strings.TrimSpace(text[start:]))
}
