package testserver

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The login at a MailServer.
const (
	MailUser     = "alerts@shop.example"
	MailPassword = "mail-password-271828"
)

// A MailServer is a stand-in for a mail server that requires TLS and a login. It checks the order of the
// commands, the login and the form of messages.
type MailServer struct {
	// URL is the address with its scheme: "smtps://127.0.0.1:PORT", or "smtp://…" for STARTTLS.
	URL string
	// Certificate is the file of the certificate of its authority, in PEM. It is valid for 127.0.0.1.
	Certificate string

	startTLS bool
	tls      *tls.Config
	mu       sync.Mutex
	received []Mail
	// replies replace the replies to commands, such as "RCPT" and ".". Each is used once.
	replies map[string][]string
	// mechanisms are those of AUTH; empty: none.
	mechanisms string
	plain      bool
}

// A Mail is a mail that the server accepted.
type Mail struct {
	From    string
	To      []string
	Message *mail.Message
	// Body is the decoded text, Raw the message as it was sent.
	Body, Raw string
}

// NewMailServer starts a mail server that ends with the test. With startTLS connections begin without TLS.
func NewMailServer(tb testing.TB, startTLS bool) *MailServer {
	tb.Helper()
	web := httptest.NewUnstartedServer(nil)
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.StartTLS()
	certificate := web.TLS.Certificates[0]
	web.Close()
	s := &MailServer{
		startTLS: startTLS, replies: make(map[string][]string), mechanisms: "PLAIN LOGIN",
		tls:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Certificate: filepath.Join(tb.TempDir(), "mail.pem"),
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(s.Certificate, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	scheme := "smtps://"
	if startTLS {
		scheme = "smtp://"
	}
	s.URL = scheme + l.Addr().String()
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { s.serve(conn) })
		}
	})
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
		open.Wait()
	})
	return s
}

// Reply sets the reply to the next command of a name. "." is the end of a message, "greeting" the first
// reply.
func (s *MailServer) Reply(command, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[command] = append(s.replies[command], reply)
}

// OfferAuth sets the mechanisms of AUTH that the server offers, separated by spaces.
func (s *MailServer) OfferAuth(mechanisms string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mechanisms = mechanisms
}

// HideTLS makes the server offer no STARTTLS.
func (s *MailServer) HideTLS() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plain = true
}

// Received returns the accepted mails.
func (s *MailServer) Received() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.received...)
}

// forced returns the reply that Reply set for a command.
func (s *MailServer) forced(command string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.replies[command]
	if len(set) == 0 {
		return "", false
	}
	s.replies[command] = set[1:]
	return set[0], true
}

// A mailSession is one connection to the server.
type mailSession struct {
	*MailServer
	conn           net.Conn
	text           *textproto.Reader
	secure, signed bool
	from           string
	to             []string
}

func (s *MailServer) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(startTimeout)) // without it, a stuck client would keep the test
	c := &mailSession{MailServer: s}
	c.use(conn)
	if !s.startTLS {
		c.use(tls.Server(conn, s.tls))
		c.secure = true
	}
	greeting, ok := s.forced("greeting")
	if !ok {
		greeting = "220 mail.example ESMTP"
	}
	c.reply(greeting)
	if !strings.HasPrefix(greeting, "2") {
		return
	}
	for {
		line, err := c.text.ReadLine()
		if err != nil || !c.command(line) {
			return
		}
	}
}

func (c *mailSession) use(conn net.Conn) {
	c.conn, c.text = conn, textproto.NewReader(bufio.NewReader(conn))
}

func (c *mailSession) reply(text string) { fmt.Fprintf(c.conn, "%s\r\n", text) }

// command carries out one command. It returns false at the end of the session.
func (c *mailSession) command(line string) bool {
	name, rest, _ := strings.Cut(line, " ")
	name = strings.ToUpper(name)
	if reply, ok := c.forced(name); ok {
		c.reply(reply)
		return true
	}
	switch name {
	case "EHLO":
		c.ehlo()
	case "STARTTLS":
		c.reply("220 go ahead")
		c.use(tls.Server(c.conn, c.tls))
		c.secure = true
	case "AUTH":
		c.auth(rest)
	case "MAIL":
		c.mail(rest)
	case "RCPT":
		c.rcpt(rest)
	case "DATA":
		c.data()
	case "QUIT":
		c.reply("221 bye")
		return false
	default:
		c.reply("502 command not implemented")
	}
	return true
}

func (c *mailSession) ehlo() {
	lines := []string{"mail.example", "8BITMIME"}
	c.mu.Lock()
	if !c.secure && !c.plain {
		lines = append(lines, "STARTTLS")
	}
	if c.secure && c.mechanisms != "" {
		lines = append(lines, "AUTH "+c.mechanisms)
	}
	c.mu.Unlock()
	for i, line := range lines {
		separator := "-"
		if i == len(lines)-1 {
			separator = " "
		}
		c.reply("250" + separator + line)
	}
}

func (c *mailSession) auth(rest string) {
	ask := func(question string) string {
		c.reply("334 " + base64.StdEncoding.EncodeToString([]byte(question)))
		line, _ := c.text.ReadLine()
		text, _ := base64.StdEncoding.DecodeString(line)
		return string(text)
	}
	mechanism, first, _ := strings.Cut(rest, " ")
	var user, password string
	switch {
	case !c.secure:
		c.reply("538 encryption required")
		return
	case mechanism == "PLAIN":
		text, _ := base64.StdEncoding.DecodeString(first)
		_, login, _ := strings.Cut(string(text), "\x00")
		user, password, _ = strings.Cut(login, "\x00")
	case mechanism == "LOGIN":
		user, password = ask("Username:"), ask("Password:")
	}
	if user != MailUser || password != MailPassword {
		c.reply("535 5.7.8 authentication failed for " + user + ":" + password)
		return
	}
	c.signed = true
	c.reply("235 ok")
}

func (c *mailSession) mail(rest string) {
	from, ok := mailPath(rest, "FROM:")
	switch {
	case !c.signed:
		c.reply("530 5.7.0 authentication required")
	case !ok:
		c.reply("501 syntax")
	default:
		c.from, c.to = from, nil
		c.reply("250 ok")
	}
}

func (c *mailSession) rcpt(rest string) {
	to, ok := mailPath(rest, "TO:")
	switch {
	case c.from == "":
		c.reply("503 MAIL first")
	case !ok:
		c.reply("501 syntax")
	case strings.HasPrefix(to, "unknown@"):
		c.reply("550 5.1.1 no such user " + to)
	default:
		c.to = append(c.to, to)
		c.reply("250 ok")
	}
}

// mailPath returns the address of MAIL or RCPT.
func mailPath(rest, prefix string) (string, bool) {
	path, _, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(path, prefix+"<") || !strings.HasSuffix(path, ">") {
		return "", false
	}
	return path[len(prefix)+1 : len(path)-1], true
}

func (c *mailSession) data() {
	if len(c.to) == 0 {
		c.reply("503 RCPT first")
		return
	}
	c.reply("354 go ahead")
	raw, err := c.text.ReadDotBytes()
	if err != nil {
		return
	}
	if reply, ok := c.forced("."); ok {
		c.reply(reply)
		return
	}
	m, why := readMail(string(raw))
	if why != "" {
		c.reply("554 5.6.0 " + why)
		return
	}
	m.From, m.To = c.from, c.to
	c.mu.Lock()
	c.received = append(c.received, m)
	c.mu.Unlock()
	c.reply("250 2.0.0 queued as 1")
}

// readMail parses a message, or says why it is refused.
func readMail(raw string) (m Mail, why string) {
	message, err := mail.ReadMessage(strings.NewReader(raw))
	if err != nil {
		return m, "the message cannot be parsed"
	}
	for _, name := range []string{"From", "To", "Date", "Message-ID", "Subject", "MIME-Version"} {
		if len(message.Header[textproto.CanonicalMIMEHeaderKey(name)]) != 1 {
			return m, "the message must have one " + name
		}
	}
	if _, err := message.Header.Date(); err != nil {
		return m, "Date is malformed"
	}
	for line := range strings.SplitSeq(raw, "\n") {
		if len(line) > 998 {
			return m, "a line is too long"
		}
	}
	body := io.Reader(message.Body)
	if message.Header.Get("Content-Transfer-Encoding") == "base64" {
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return m, "the text cannot be decoded"
	}
	return Mail{Message: message, Body: string(text), Raw: raw}, ""
}
