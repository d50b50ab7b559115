package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/smtp"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file sends the mails of alerts. A request with the scheme smtps (TLS) or smtp (STARTTLS) is one mail:
// the body is its message. Its envelope and its login are in the URL, which only the sealed secret of a sink
// has. So a body cannot choose its recipients.
//
// The reply that ends the transaction is the response: its code is the status, its text the body. That is the
// reply to the message, or the refusal of a command before it.

// maxMailReplies bounds what is read from a mail server during one attempt, its TLS records included.
const maxMailReplies = 256 << 10

// isMail reports whether a URL is that of a mail server.
func isMail(u *url.URL) bool { return u.Scheme == "smtp" || u.Scheme == "smtps" }

// decideMail is decide for mail servers: it permits the ports for the submission of mail. Port 25 is for
// servers among each other, so it needs egress_allow.
func (g *Guard) decideMail(addr netip.Addr, port uint16) decision {
	return g.decideUnless(addr, port, func(addr netip.Addr) bool {
		return g.public.SafeAddr(addr) != nil || isDeniedPort(port) && port != 465 && port != 587
	})
}

// A mailError is a failure of a mail server that sent no reply code.
type mailError struct {
	class store.Class
	text  string
}

// Error returns the text.
func (e *mailError) Error() string { return e.text }

// sendMail sends a mail on a connection of its own.
func (t *transport) sendMail(req *http.Request, a *attempt) (*http.Response, error) {
	message, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, &requestError{errors.New("the message cannot be read")}
	}
	u := req.URL
	envelope := u.Query()
	m := mail{
		from: envelope.Get("from"), to: envelope["to"], user: u.User, client: t, attempt: a,
		secured: u.Scheme == "smtps",
	}
	if m.from == "" || len(m.to) == 0 {
		return nil, &requestError{errors.New("the mail has no sender or no recipient")}
	}
	id := req.Header[sign.HeaderID]
	if len(id) == 1 {
		_, domain, _ := strings.Cut(m.from, "@")
		message = append([]byte("Message-ID: <"+id[0]+"@"+domain+">\r\n"), message...)
	}
	conn, host, err := connect(a, u, t.dialer.dialMail)
	if err != nil {
		return nil, err
	}
	m.host = host
	raw := &meteredConn{Conn: conn, left: maxMailReplies}
	defer raw.Close()
	stop := context.AfterFunc(a, func() { _ = raw.SetDeadline(longAgo) }) // it fails only if closed
	defer stop()
	code, text, err := m.deliver(raw, message)
	if reply, ok := errors.AsType[*textproto.Error](err); ok && reply.Code >= 400 {
		code, text, err = reply.Code, reply.Msg, nil
	}
	if err != nil {
		return nil, m.cause(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: req,
	}, nil
}

// A meteredConn ends the reading of a server that sends without an end.
type meteredConn struct {
	net.Conn
	left int
}

// Read implements io.Reader.
func (c *meteredConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeadersTooLarge
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// A mail is one transaction with a mail server.
type mail struct {
	from    string
	to      []string
	user    *url.Userinfo
	host    string
	attempt *attempt
	client  *transport
	// secured: the connection has TLS from its first byte.
	secured bool
}

// cause returns the context's error if the context has ended the connection, else err.
func (m *mail) cause(err error) error {
	if why := m.attempt.Err(); why != nil {
		return why
	}
	_, malformed := errors.AsType[textproto.ProtocolError](err)
	_, unexpected := errors.AsType[*textproto.Error](err)
	switch {
	case malformed, unexpected:
		return &mailError{store.ClassProtocol, "the reply is not what SMTP expects"}
	case errors.Is(err, errHeadersTooLarge):
		return &mailError{store.ClassHeadersTooLarge, "the replies are larger than 256 KiB"}
	}
	return err
}

// deliver makes the transaction and returns the reply to the message. A refusal is a *textproto.Error.
// Recipients that are refused do not keep the mail from the others; the text names the first refusal.
func (m *mail) deliver(raw net.Conn, message []byte) (code int, text string, err error) {
	c, err := m.begin(raw)
	if err != nil {
		return 0, "", err
	}
	if err := c.Mail(m.from); err != nil {
		return 0, "", err
	}
	var refusal *textproto.Error
	accepted := 0
	for _, to := range m.to {
		err := c.Rcpt(to)
		refused, ok := errors.AsType[*textproto.Error](err)
		switch {
		case err == nil:
			accepted++
		case !ok:
			return 0, "", err
		case refusal == nil:
			refusal = refused
		}
	}
	if accepted == 0 {
		return 0, "", refusal
	}
	code, text, err = m.data(c, message)
	if err == nil && refusal != nil {
		text += fmt.Sprintf("\n%d of %d recipients were refused: %d %s", len(m.to)-accepted, len(m.to),
			refusal.Code, refusal.Msg)
	}
	return code, text, err
}

// begin secures the connection and signs in.
func (m *mail) begin(raw net.Conn) (*smtp.Client, error) {
	conn := raw
	a := m.attempt
	if m.secured {
		var err error
		conn, err = m.client.handshake(a, raw, m.host)
		if err != nil {
			return nil, err
		}
	}
	a.phase = phaseConnect
	c, err := smtp.NewClient(conn, m.host)
	if err != nil {
		return nil, err
	}
	a.onFirstByte()
	if err := c.Hello(addressLiteral(raw.LocalAddr())); err != nil {
		return nil, err
	}
	if !m.secured {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return nil, &mailError{store.ClassTLSProto, "the mail server offers no STARTTLS"}
		}
		config := m.client.tls.Clone()
		config.ServerName = m.host
		if err := c.StartTLS(config); err != nil {
			return nil, err
		}
	}
	if m.user == nil {
		return c, nil
	}
	if _, offered := c.Extension("AUTH"); !offeredAuth(offered) {
		return nil, &mailError{store.ClassProtocol, "the mail server offers no AUTH PLAIN or LOGIN"}
	}
	password, _ := m.user.Password()
	return c, c.Auth(&login{user: m.user.Username(), password: password})
}

// data sends the message and returns the reply. From its end on the server may have the mail.
func (m *mail) data(c *smtp.Client, message []byte) (code int, text string, err error) {
	id, err := c.Text.Cmd("DATA")
	if err != nil {
		return 0, "", err
	}
	c.Text.StartResponse(id)
	_, _, err = c.Text.ReadResponse(354)
	c.Text.EndResponse(id)
	if err != nil {
		return 0, "", err
	}
	w := c.Text.DotWriter()
	if _, err := w.Write(message); err != nil {
		return 0, "", err
	}
	m.attempt.gotConn = true
	if err := w.Close(); err != nil {
		return 0, "", err
	}
	code, text, err = c.Text.ReadResponse(2)
	if err == nil {
		_ = c.Text.PrintfLine("QUIT") // the server has the mail; a lost QUIT changes nothing
	}
	return code, text, err
}

// addressLiteral returns an address as EHLO takes it from a machine without a public name.
func addressLiteral(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return "localhost"
	case tcp.IP.To4() == nil:
		return "[IPv6:" + tcp.IP.String() + "]"
	}
	return "[" + tcp.IP.String() + "]"
}

// offeredAuth reports whether a server offers a mechanism of login.
func offeredAuth(offered string) bool {
	of := strings.Fields(strings.ToUpper(offered))
	return slices.Contains(of, "PLAIN") || slices.Contains(of, "LOGIN")
}

// A login is AUTH PLAIN, or LOGIN if the server offers no PLAIN. It implements smtp.Auth.
type login struct{ user, password string }

// Start implements smtp.Auth. It refuses a connection without TLS.
func (l *login) Start(server *smtp.ServerInfo) (mechanism string, first []byte, err error) {
	if !server.TLS {
		return "", nil, &mailError{store.ClassTLSProto, "the connection to the mail server has no TLS"}
	}
	isPlain := func(m string) bool { return strings.EqualFold(m, "PLAIN") }
	if slices.ContainsFunc(server.Auth, isPlain) {
		return "PLAIN", []byte("\x00" + l.user + "\x00" + l.password), nil
	}
	return "LOGIN", nil, nil
}

// Next implements smtp.Auth: LOGIN asks for the user and then for the password.
func (l *login) Next(asked []byte, more bool) ([]byte, error) {
	switch question := strings.ToLower(string(asked)); {
	case !more:
		return nil, nil
	case strings.HasPrefix(question, "user"):
		return []byte(l.user), nil
	case strings.HasPrefix(question, "pass"):
		return []byte(l.password), nil
	}
	return nil, &mailError{store.ClassProtocol, "the mail server asks for more than user and password"}
}
