package sink

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A State is what a message says about its alert.
type State string

// The states of messages.
const (
	Firing   State = "firing"
	Resolved State = "resolved"
	Test     State = "test"
	Digest   State = "digest"
)

// A Message is what a sink shows. Its texts are plain, in the sink's language, and without a limit: Render
// escapes and cuts them.
type Message struct {
	// ID identifies the message for programs. Only a webhook has it.
	ID    string
	State State
	Title string
	Lines []string
	// Link is a URL of the dispatcher's pages. Empty: none.
	Link string
	// At is shown in its own time zone.
	At time.Time
}

const (
	// maxTitle and maxLine bound texts in characters, maxLines the lines of a message, and maxLink a link in
	// bytes. With no line, a message of any platform is within its limit.
	maxTitle = 150
	maxLine  = 1000
	maxLines = 500
	maxLink  = 500
	// timeFormat has the offset: readers are in several zones.
	timeFormat = "2006-01-02 15:04:05 -07:00"
)

// ContentTypes of Render. Mail is a message of RFC 5322 without Message-ID, which is added by the sender.
const (
	jsonType = "application/json; charset=utf-8"
	MailType = "message/rfc822"
)

// words are the texts that Render adds.
type words struct {
	states     map[State]string
	open, more string
}

var texts = map[string]words{
	English: {
		map[State]string{Firing: "Alert", Resolved: "Resolved", Test: "Test", Digest: "Summary"},
		"Open", "… %d more",
	},
	Chinese: {
		map[State]string{Firing: "告警", Resolved: "已恢复", Test: "测试", Digest: "汇总"},
		"查看", "…… 另有 %d 条",
	},
}

func (c Config) words() words {
	if w, ok := texts[c.Language]; ok {
		return w
	}
	return texts[English]
}

// Render returns a message in the format of the sink's platform, and its content type. A message that is
// longer than the platform permits loses its last lines, and says how many.
func (c Config) Render(m Message) (body []byte, contentType string) {
	total := len(m.Lines)
	m = m.plain()
	if c.Type != Webhook { // programs read it
		m = m.unlinked()
	}
	f, limit, contentType := c.format(m)
	more := func(shown int) string { return fmt.Sprintf(c.words().more, total-shown) }
	return fit(m.Lines, total, limit, more, f), contentType
}

// A format returns the body of a message with some of its lines, and the size that the platform limits: that
// of the body or of a part of it, in bytes.
type format func(lines []string) (body []byte, size int)

// format returns the format of the platform, its limit in bytes and its content type.
func (c Config) format(m Message) (f format, limit int, contentType string) {
	switch c.Type {
	case DingTalk:
		return c.dingTalk(m), 20_000, jsonType
	case WeCom:
		if len(c.Mentions) > 0 {
			return c.weComText(m), 2048, jsonType
		}
		return c.weComMarkdown(m), 4096, jsonType
	case Feishu:
		return c.feishu(m), 20_000 - 200, jsonType // the signature is added to the body
	case Slack:
		return c.slack(m), 12_000, jsonType
	case Teams:
		return c.teams(m), 28_000, jsonType
	case Email:
		return c.mail(m), 100_000, MailType
	}
	return webhook(m), 200_000, jsonType
}

// plain returns the message with texts of one line each, without control characters, cut to the limits.
func (m Message) plain() Message {
	m.Title = oneLine(m.Title, maxTitle)
	lines := m.Lines
	m.Lines = make([]string, 0, min(len(lines), maxLines))
	for i, line := range lines {
		if i == maxLines {
			break
		}
		m.Lines = append(m.Lines, oneLine(line, maxLine))
	}
	if len(m.Link) > maxLink || badURL(m.Link, "http", "https") != "" ||
		strings.ContainsAny(m.Link, "()<>[]|\"'`*") {
		m.Link = ""
	}
	return m
}

// linked matches what clients turn into links: schemes, host names and addresses without any markup. The dots
// of other scripts count as dots in host names.
var linked = regexp.MustCompile(`://|[.．｡]\pL|\b\d+\.\d+\.\d+\.\d+\b`)

var unlink = strings.NewReplacer(":", "[:]", ".", "[.]", "．", "[.]", "｡", "[.]")

// unlinked returns the message with texts that no client turns into links: "shop[.]example". People read it,
// and the text may be from a receiver or a sender.
func (m Message) unlinked() Message {
	m.Title = linked.ReplaceAllStringFunc(m.Title, unlink.Replace)
	for i, line := range m.Lines { // the list is that of plain
		m.Lines[i] = linked.ReplaceAllStringFunc(line, unlink.Replace)
	}
	return m
}

// oneLine returns a text without line breaks and control characters, cut to a number of characters.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(parse.Clean([]byte(parse.Cut(text, 4*most)))), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// fit returns the body with as many lines as the limit permits, and with the line of more if some of the
// total are missing. Of a first line that is too long alone it keeps the beginning.
func fit(lines []string, total, limit int, more func(shown int) string, f format) []byte {
	build := func(n int) ([]byte, int) {
		shown := lines[:n:n]
		if n < total {
			shown = append(shown, more(n))
		}
		return f(shown)
	}
	n := largest(len(lines), func(n int) bool { _, size := build(n); return size <= limit })
	if n > 0 || len(lines) == 0 {
		body, _ := build(n)
		return body
	}
	first := []rune(lines[0])
	cut := func(n int) ([]byte, int) {
		shown := []string{string(first[:n]) + "…"}
		if total > 1 {
			shown = append(shown, more(1))
		}
		return f(shown)
	}
	body, _ := cut(largest(len(first), func(n int) bool { _, size := cut(n); return size <= limit }))
	return body
}

// largest returns the largest n up to most for which ok is true, or 0. ok is true up to it and then false.
func largest(most int, ok func(n int) bool) int {
	if ok(most) {
		return most
	}
	return max(sort.Search(most, func(n int) bool { return !ok(n) })-1, 0)
}

// title returns the title with the word of its state.
func (c Config) title(m Message) string {
	word := c.words().states[m.State]
	switch {
	case word == "":
		return m.Title
	case c.Language == Chinese:
		return "【" + word + "】" + m.Title
	}
	return word + ": " + m.Title
}

// encode returns a value of this package as JSON.
func encode(v any) []byte {
	text, _ := parse.Encode(v) // cannot fail: texts, numbers, maps and lists
	return text
}
