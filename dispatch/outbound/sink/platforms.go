package sink

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object of a platform.
type object = map[string]any

// whole returns a body whose size is limited as a whole.
func whole(v any) ([]byte, int) {
	body := encode(v)
	return body, len(body)
}

// wide replaces the characters of links, emphasis and tags by their wide forms. The Markdown of DingTalk and
// WeCom has no documented escapes.
var wide = strings.NewReplacer("[", "［", "]", "］", "<", "＜", ">", "＞", "*", "＊", "`", "｀", "!", "！",
	"~", "～")

// dingTalk is the markdown message of DingTalk. A mention needs "@" in the text as well.
func (c Config) dingTalk(m Message) format {
	mobiles, users, all := c.splitMentions()
	return func(lines []string) ([]byte, int) {
		var b strings.Builder
		b.WriteString("### " + wide.Replace(c.title(m)) + "\n\n")
		for _, line := range lines {
			b.WriteString("- " + wide.Replace(line) + "\n")
		}
		b.WriteString("\n" + m.At.Format(timeFormat) + "\n")
		if m.Link != "" {
			fmt.Fprintf(&b, "\n[%s](%s)\n", c.words().open, m.Link)
		}
		for _, id := range append(mobiles[:len(mobiles):len(mobiles)], users...) {
			b.WriteString(" @" + id)
		}
		return whole(object{
			"msgtype":  "markdown",
			"markdown": object{"title": c.title(m), "text": b.String()},
			"at":       object{"atMobiles": mobiles, "atUserIds": users, "isAtAll": all},
		})
	}
}

// weComMarkdown is the markdown message of WeCom. The limit is that of its content.
func (c Config) weComMarkdown(m Message) format {
	return func(lines []string) ([]byte, int) {
		var b strings.Builder
		b.WriteString("**" + wide.Replace(c.title(m)) + "**\n")
		for _, line := range lines {
			b.WriteString("> " + wide.Replace(line) + "\n")
		}
		b.WriteString(m.At.Format(timeFormat))
		if m.Link != "" {
			fmt.Fprintf(&b, "\n[%s](%s)", c.words().open, m.Link)
		}
		return encode(object{"msgtype": "markdown", "markdown": object{"content": b.String()}}), b.Len()
	}
}

// weComText is the text message of WeCom: only it can mention people by phone number.
func (c Config) weComText(m Message) format {
	mobiles, users, all := c.splitMentions()
	if all {
		users = append(users, "@all")
	}
	return func(lines []string) ([]byte, int) {
		content := c.plainText(m, lines)
		return encode(object{"msgtype": "text", "text": object{
			"content": content, "mentioned_list": users, "mentioned_mobile_list": mobiles,
		}}), len(content)
	}
}

// escapeFeishu escapes a text as the Markdown of Feishu cards documents it: by the character's number.
func escapeFeishu(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune("&<>*~[]()_`#!\\-+$|", r) {
			b.WriteString("&#" + strconv.Itoa(int(r)) + ";")
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// feishuColors are the colors of a card's title.
var feishuColors = map[State]string{Firing: "red", Resolved: "green"}

// feishu is a card of Feishu and Lark.
func (c Config) feishu(m Message) format {
	color := feishuColors[m.State]
	if color == "" {
		color = "blue"
	}
	var mentions strings.Builder
	for _, id := range c.Mentions {
		name := "id"
		if strings.Contains(id, "@") {
			name = "email"
		}
		mentions.WriteString("<at " + name + "=" + id + "></at> ")
	}
	return func(lines []string) ([]byte, int) {
		var b strings.Builder
		for _, line := range lines {
			b.WriteString("• " + escapeFeishu(line) + "\n")
		}
		b.WriteString(m.At.Format(timeFormat))
		if m.Link != "" {
			fmt.Fprintf(&b, "\n[%s](%s)", c.words().open, m.Link)
		}
		if mentions.Len() > 0 {
			b.WriteString("\n" + strings.TrimSpace(mentions.String()))
		}
		return whole(object{"msg_type": "interactive", "card": object{
			"config": object{"wide_screen_mode": true},
			"header": object{
				"title":    object{"tag": "plain_text", "content": c.title(m)},
				"template": color,
			},
			"elements": []any{object{"tag": "markdown", "content": b.String()}},
		}})
	}
}

// escapeSlack escapes the three characters of Slack's control sequences.
var escapeSlack = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slack is a message of a Slack webhook.
func (c Config) slack(m Message) format {
	return func(lines []string) ([]byte, int) {
		var b strings.Builder
		b.WriteString("*" + strings.ReplaceAll(escapeSlack.Replace(c.title(m)), "*", "∗") + "*\n")
		for _, line := range lines {
			b.WriteString("• " + escapeSlack.Replace(line) + "\n")
		}
		b.WriteString(m.At.Format(timeFormat))
		if m.Link != "" {
			fmt.Fprintf(&b, "\n<%s|%s>", escapeSlack.Replace(m.Link), c.words().open)
		}
		for i, id := range c.Mentions {
			if i == 0 {
				b.WriteString("\n")
			}
			if id == mentionAll {
				b.WriteString("<!channel> ")
				continue
			}
			b.WriteString("<@" + id + "> ")
		}
		return whole(object{"text": strings.TrimSpace(b.String())})
	}
}

// teams is an Adaptive Card for a workflow of Teams. The runs of a RichTextBlock have no Markdown, so that
// they need no escapes.
func (c Config) teams(m Message) format {
	block := func(text, weight string) object {
		run := object{"type": "TextRun", "text": text}
		if weight != "" {
			run["weight"] = weight
		}
		return object{"type": "RichTextBlock", "inlines": []any{run}}
	}
	return func(lines []string) ([]byte, int) {
		body := []any{block(c.title(m), "Bolder")}
		for _, line := range lines {
			body = append(body, block(line, ""))
		}
		card := object{
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
			"type":    "AdaptiveCard", "version": "1.4",
			"body": append(body, block(m.At.Format(timeFormat), "")),
		}
		if m.Link != "" {
			card["actions"] = []any{object{"type": "Action.OpenUrl", "title": c.words().open, "url": m.Link}}
		}
		return whole(object{"type": "message", "attachments": []any{object{
			"contentType": "application/vnd.microsoft.card.adaptive", "content": card,
		}}})
	}
}

// WebhookType is the member "type" of the message of a webhook.
const WebhookType = "dispatcher.alert"

// webhook is a message for programs: what Message has, in JSON.
func webhook(m Message) format {
	return func(lines []string) ([]byte, int) {
		return whole(object{
			"type": WebhookType, "id": m.ID, "state": m.State, "title": m.Title, "lines": lines,
			"link": m.Link, "at": m.At.UTC().Format(time.RFC3339Nano),
		})
	}
}

// plainText is a message without markup.
func (c Config) plainText(m Message, lines []string) string {
	parts := append([]string{c.title(m)}, lines...)
	parts = append(parts, m.At.Format(timeFormat))
	if m.Link != "" {
		parts = append(parts, m.Link)
	}
	return strings.Join(parts, "\n")
}

// splitMentions returns the phone numbers and the user ids of the mentions, and whether all are mentioned.
// The lists are not nil, because some platforms want a list.
func (c Config) splitMentions() (mobiles, users []string, all bool) {
	mobiles, users = []string{}, []string{}
	for _, id := range c.Mentions {
		switch {
		case id == mentionAll:
			all = true
		case isPhone(id):
			mobiles = append(mobiles, id)
		default:
			users = append(users, id)
		}
	}
	return mobiles, users, all
}

// isPhone reports whether a mention is a phone number: digits, and before them perhaps "+86-".
func isPhone(id string) bool {
	digits := 0
	for _, r := range id {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r != '+' && r != '-':
			return false
		}
	}
	return digits >= 8
}
