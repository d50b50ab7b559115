package sink

import (
	"bytes"
	"encoding/base64"
	"mime"
	"net/url"
	"strings"
	"time"
)

// mail is a message of RFC 5322. Its text is base64, so that no line of it can be a header. The sender adds
// Message-ID, so that all attempts send the same mail.
func (c Config) mail(m Message) format {
	return func(lines []string) ([]byte, int) {
		text := strings.ReplaceAll(c.plainText(m, lines), "\n", "\r\n") + "\r\n"
		var b bytes.Buffer
		for _, h := range [...][2]string{
			{"From", c.From},
			{"To", strings.Join(c.To, ",\r\n ")},
			{"Subject", mime.BEncoding.Encode("utf-8", c.title(m))},
			{"Date", m.At.Format(time.RFC1123Z)},
			{"Auto-Submitted", "auto-generated"},
			{"MIME-Version", "1.0"},
			{"Content-Type", "text/plain; charset=utf-8"},
			{"Content-Transfer-Encoding", "base64"},
		} {
			b.WriteString(h[0] + ": " + h[1] + "\r\n")
		}
		b.WriteString("\r\n")
		encoded := base64.StdEncoding.EncodeToString([]byte(text))
		for len(encoded) > 0 {
			n := min(len(encoded), 76)
			b.WriteString(encoded[:n] + "\r\n")
			encoded = encoded[n:]
		}
		return b.Bytes(), len(text)
	}
}

// mailURL returns the sealed URL of a mail sink: server and login, and in the query the sender and the
// recipients. So the recipients are the sink's, whatever a message says.
func (c Config) mailURL() string {
	u, err := url.Parse(c.mailServer())
	if err != nil {
		return ""
	}
	if c.Username != "" {
		u.User = url.UserPassword(c.Username, c.Password)
	}
	u.Path = "/"
	u.RawQuery = url.Values{"from": {c.From}, "to": c.To}.Encode()
	return u.String()
}
