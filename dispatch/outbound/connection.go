package outbound

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// maxResponseHeaderBytes bounds a receiver's headers, informational responses included.
	maxResponseHeaderBytes = 64 << 10
	// maxInlineBody is the maximum length of a body that is written before the answer is read. With its
	// headers it fits into the send buffer of a socket. A longer write may block until the timeout, on a
	// receiver that has answered and reads no more.
	maxInlineBody = 32 << 10
	// pieceSize is the size of the writes of a long body.
	pieceSize = 32 << 10
	// sentWait is how long to wait for the end of writing after the answer has been read. Receivers that read
	// the whole request before they answer cause no wait.
	sentWait = 50 * time.Millisecond
)

var (
	errHeadersTooLarge = errors.New("the response's headers are too large")
	// longAgo is a deadline in the past: it ends every read and write at once.
	longAgo = time.Unix(1, 0)
	// writers holds buffers for requests. A connection needs one only while it writes.
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
	// pieces holds buffers for bodies that are longer than a writer's buffer.
	pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}
)

// A connection is one HTTP/1.1 connection to a receiver. One attempt at a time uses it, so it has no lock. It
// runs in the goroutine of that attempt, except for the writing of large bodies. No goroutine waits on an
// idle connection. net/http writes requests and parses answers.
type connection struct {
	// conn is TLS on raw, or raw itself.
	conn, raw net.Conn
	key       poolKey
	in        *bufio.Reader
	// readBudget is how many more bytes may be read.
	readBudget int64
	// writeErr is the error of the last failed write.
	writeErr error
	// idleSince is when the last attempt returned it to the pool. Zero means that it was never idle.
	idleSince time.Time
	// interrupt ends all reads and writes.
	interrupt func()
	// idle detects that the receiver has closed the connection while it was in the pool.
	idle idleCheck
}

// newConnection takes over a connection that was just dialed. conn is TLS on raw after its handshake, or raw
// itself. Only raw has the file descriptor that the idle check watches.
func newConnection(conn, raw net.Conn, key poolKey) *connection {
	c := &connection{conn: conn, raw: raw, key: key}
	c.in = bufio.NewReader(c)
	c.interrupt = func() { _ = conn.SetDeadline(longAgo) } // it fails only on a closed connection
	c.idle.watch(raw)
	return c
}

// Read implements io.Reader within the read budget.
func (c *connection) Read(p []byte) (int, error) {
	if c.readBudget <= 0 {
		return 0, errHeadersTooLarge
	}
	if int64(len(p)) > c.readBudget {
		p = p[:c.readBudget]
	}
	n, err := c.conn.Read(p)
	c.readBudget -= int64(n)
	return n, err
}

// Write implements io.Writer. It records the error in writeErr.
func (c *connection) Write(p []byte) (int, error) {
	n, err := c.conn.Write(p)
	if err != nil {
		c.writeErr = err
	}
	return n, err
}

// ReadFrom implements io.ReaderFrom. Without it a bufio.Writer would write a large body in pieces of its own
// small size.
func (c *connection) ReadFrom(r io.Reader) (int64, error) {
	p := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(p)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, p[:])
}

// abort closes the connection without the TLS close message, whose write could block on a receiver that does
// not read.
func (c *connection) abort() {
	_ = c.raw.Close() // no data is lost by a failed close
}

// close closes an idle connection.
func (c *connection) close() {
	_ = c.conn.Close() // no data is lost by a failed close
}

// exchange sends the request and returns the answer with its headers read. The caller must read or close the
// body, which ends the exchange. At its end, done is called with the connection if it can be reused;
// otherwise it is closed. If exchange returns an error, it has closed the connection.
func (c *connection) exchange(
	req *http.Request, a *attempt, done func(*connection),
) (resp *http.Response, err error) {
	x := &exchange{conn: c, ctx: req.Context(), done: done}
	x.stop = context.AfterFunc(x.ctx, c.interrupt)
	defer func() {
		if resp != nil {
			return
		}
		x.end(false) // also after a panic
		switch {
		case x.sendErr != nil && c.writeErr == nil:
			err = &requestError{x.sendErr} // the request is invalid, the connection is not at fault
		case err != nil:
			err = x.cause(err)
		}
	}()
	c.readBudget = maxResponseHeaderBytes
	if req.ContentLength > maxInlineBody {
		x.sent = make(chan error, 1)
		go c.sendInBackground(req, x.sent)
	} else {
		x.sendErr = c.send(req)
		if x.sendErr != nil && c.writeErr == nil {
			return nil, x.sendErr
		}
	}
	// If a write failed, read all the same. The receiver may have answered before it closed the connection.
	// Otherwise the read error describes how the connection ended.
	got, err := c.readAnswer(req, a)
	if err != nil {
		return nil, err
	}
	x.lastRequest = got.Close || req.Close || got.StatusCode < 200
	c.readBudget = math.MaxInt64
	if got.Body == http.NoBody {
		x.end(true)
	} else {
		x.body, got.Body = got.Body, x
	}
	return got, nil
}

// sendInBackground is send in a goroutine of its own, while the caller reads the answer. If the request
// itself is invalid, no answer will come, so it closes the connection to end the caller's read.
func (c *connection) sendInBackground(req *http.Request, sent chan<- error) {
	err := errors.New("sending the request panicked")
	defer func() {
		_ = recover() // a panic fails this attempt only; err reports it
		if err != nil && c.writeErr == nil {
			c.abort()
		}
		sent <- err
	}()
	err = c.send(req)
}

// send writes the request.
func (c *connection) send(req *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(c)
	defer w.Reset(nil)
	if err := req.Write(w); err != nil {
		return err
	}
	return w.Flush()
}

// readAnswer reads the headers of the answer and skips informational responses (1xx) before it.
func (c *connection) readAnswer(req *http.Request, a *attempt) (*http.Response, error) {
	if _, err := c.in.Peek(1); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	a.onFirstByte()
	for {
		resp, err := http.ReadResponse(c.in, req)
		switch {
		case err != nil && c.readBudget <= 0:
			return nil, errHeadersTooLarge // the parser saw a truncated header
		case err != nil:
			return nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
	}
}

// An exchange is one request and its answer on a connection. It is the body of the answer.
type exchange struct {
	// conn is nil after the exchange has ended. err is then the result of Read.
	conn *connection
	err  error
	ctx  context.Context
	body io.ReadCloser
	done func(*connection)
	// lastRequest means that the connection must not be reused.
	lastRequest bool
	// stop cancels the interruption of the connection by the request's context. It returns false if the
	// context has already interrupted it.
	stop func() bool
	// sent receives the result of sendInBackground. It is nil if the request was sent inline. sendErr is the
	// error of sending.
	sent    chan error
	sendErr error
}

// Read implements io.Reader for the answer's body. The end of the body ends the exchange.
func (x *exchange) Read(p []byte) (int, error) {
	if x.conn == nil {
		return 0, x.err
	}
	n, err := x.body.Read(p)
	if err != nil {
		x.err = x.cause(err)
		x.end(err == io.EOF)
	}
	return n, x.err
}

// cause returns the context's error if the context has interrupted the connection, else err.
func (x *exchange) cause(err error) error {
	if why := x.ctx.Err(); why != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return why
	}
	return err
}

// Close implements io.Closer. It ends the exchange without reading the rest of the body.
func (x *exchange) Close() error {
	if x.conn != nil {
		x.err = http.ErrBodyReadAfterClose
		x.end(false)
	}
	return nil
}

// end ends the exchange once. whole means that the answer was read to its end. The connection goes to done if
// it can be reused, else it is closed.
func (x *exchange) end(whole bool) {
	c := x.conn
	x.conn = nil
	if c == nil {
		return
	}
	reusable := whole && !x.lastRequest && x.allSent()
	// stop must be called before done: later, the context would interrupt the next attempt on this
	// connection.
	if !x.stop() || !reusable || c.writeErr != nil || !c.drained() {
		c.abort()
		if x.sent != nil {
			x.sendErr = <-x.sent
		}
		return
	}
	x.done(c)
}

// allSent reports whether the whole request was sent. It waits for at most sentWait.
func (x *exchange) allSent() bool {
	if x.sent == nil {
		return true
	}
	timeout := time.NewTimer(sentWait)
	defer timeout.Stop()
	select {
	case x.sendErr = <-x.sent:
		x.sent = nil
		return x.sendErr == nil
	case <-timeout.C:
		return false
	}
}

// drained reports whether no unread data is left. Such data would be read as the next answer. TLS may have
// received more than it has returned, the close message included; only a read shows that.
func (c *connection) drained() bool {
	if c.in.Buffered() > 0 {
		return false
	}
	if c.conn == c.raw {
		return true
	}
	if err := c.conn.SetReadDeadline(longAgo); err != nil {
		return false
	}
	_, err := c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded) && c.conn.SetReadDeadline(time.Time{}) == nil
}

// An idleCheck detects without blocking whether the receiver has closed an idle connection.
type idleCheck struct {
	raw  syscall.RawConn
	look func(fd uintptr) bool
	buf  [1]byte
	err  error
}

// watch sets the connection to check. A connection without a file descriptor is never reported as closed.
func (p *idleCheck) watch(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return // the connection is closed; its first use reports the error
	}
	p.raw = raw
	p.look = func(fd uintptr) bool {
		p.err = checkSilent(fd, p.buf[:])
		return true
	}
}

// usable reports whether the connection is open and has no unread data. Data on an idle connection is its end
// or an answer without a request.
func (p *idleCheck) usable() bool {
	if p.raw == nil {
		return true
	}
	p.err = nil
	err := p.raw.Read(p.look)
	return err == nil && p.err == nil
}
