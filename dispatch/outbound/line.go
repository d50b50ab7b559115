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
	// inOneGo is up to how long a body is sent before the answer is read. With its headers it fits into what
	// a connection takes without its peer reading; sending more may wait for a peer that has answered already
	// and reads no more.
	inOneGo = 32 << 10
	// pieceSize is in what pieces long bodies are written.
	pieceSize = 32 << 10
	// sentWait is how long the end of sending is waited for once the answer has been read. Receivers that
	// read everything before they answer leave nothing to wait for.
	sentWait = 50 * time.Millisecond
)

var (
	errHeadersTooLarge = errors.New("the answer's headers are too large")
	// longAgo is a deadline that has passed.
	longAgo = time.Unix(1, 0)
	// writers are for requests: a connection needs one only while it sends.
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
	// pieces are for bodies that are longer than a writer.
	pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}
)

// A line is one connection and what HTTP/1.1 needs of it. One attempt has it at a time, and all that it takes
// happens in that attempt's goroutine, but for the sending of large bodies: no goroutine waits on a
// connection that is idle. Requests are written and answers are parsed by net/http.
type line struct {
	// wire carries the bytes: below itself, or TLS on it.
	wire, below net.Conn
	place       place
	in          *bufio.Reader
	// allowance is how many bytes may still be read.
	allowance int64
	// broken is the error that ended sending.
	broken error
	// since is when the last attempt gave it back; zero: none has had it.
	since time.Time
	// expire ends all reading and writing.
	expire func()
	probe  probe
}

func newLine(wire, below net.Conn, p place) *line {
	l := &line{wire: wire, below: below, place: p}
	l.in = bufio.NewReader(l)
	l.expire = func() { _ = wire.SetDeadline(longAgo) } // what cannot be interrupted has ended
	l.probe.on(below)
	return l
}

// Read reads what the allowance leaves.
func (l *line) Read(p []byte) (int, error) {
	if l.allowance <= 0 {
		return 0, errHeadersTooLarge
	}
	if int64(len(p)) > l.allowance {
		p = p[:l.allowance]
	}
	n, err := l.wire.Read(p)
	l.allowance -= int64(n)
	return n, err
}

// Write writes, and remembers why it could not.
func (l *line) Write(p []byte) (int, error) {
	n, err := l.wire.Write(p)
	if err != nil {
		l.broken = err
	}
	return n, err
}

// ReadFrom writes what a bufio.Writer would otherwise write in pieces of its own size.
func (l *line) ReadFrom(r io.Reader) (int64, error) {
	p := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(p)
	return io.CopyBuffer(struct{ io.Writer }{l}, r, p[:])
}

// hangUp closes the connection as it is. TLS is not taken leave of, which could wait for a peer that does not
// read.
func (l *line) hangUp() {
	_ = l.below.Close() // there is nothing left that could be lost by it
}

// close closes an idle connection.
func (l *line) close() {
	_ = l.wire.Close() // nobody waits for its peer's consent
}

// exchange sends the request and returns the answer as far as its headers. Its body ends the exchange, by its
// end or by being closed: done is then called with the line if it can be used again. If there is no answer
// the line is closed.
func (l *line) exchange(req *http.Request, a *attempt, done func(*line)) (resp *http.Response, err error) {
	x := &exchange{line: l, ctx: req.Context(), done: done}
	x.stop = context.AfterFunc(x.ctx, l.expire)
	defer func() {
		if resp != nil {
			return
		}
		x.end(false) // also when something has panicked
		switch {
		case x.fault != nil && l.broken == nil:
			err = &requestError{x.fault} // not the connection's
		case err != nil:
			err = x.cause(err)
		}
	}()
	l.allowance = maxResponseHeaderBytes
	if req.ContentLength > inOneGo {
		x.sent = make(chan error, 1)
		go l.sendBeside(req, x.sent)
	} else {
		x.fault = l.send(req)
		if x.fault != nil && l.broken == nil {
			return nil, x.fault
		}
	}
	// Where sending has failed, its peer may have answered before, and at least has said how it ended.
	got, err := l.answer(req, a)
	if err != nil {
		return nil, err
	}
	x.last = got.Close || req.Close || got.StatusCode < 200
	l.allowance = math.MaxInt64
	if got.Body == http.NoBody {
		x.end(true)
	} else {
		x.body, got.Body = got.Body, x
	}
	return got, nil
}

// sendBeside is send for another goroutine than the one that reads the answer. Should the request be at
// fault, there is no answer to wait for.
func (l *line) sendBeside(req *http.Request, sent chan<- error) {
	err := errors.New("sending the request panicked")
	defer func() {
		_ = recover() // what is wrong with one request is its own attempt's
		if err != nil && l.broken == nil {
			l.hangUp()
		}
		sent <- err
	}()
	err = l.send(req)
}

// send writes the request.
func (l *line) send(req *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(l)
	defer w.Reset(nil)
	if err := req.Write(w); err != nil {
		return err
	}
	return w.Flush()
}

// answer reads the headers of the answer, and skips what is informational before it.
func (l *line) answer(req *http.Request, a *attempt) (*http.Response, error) {
	if _, err := l.in.Peek(1); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	a.onFirstByte()
	for {
		resp, err := http.ReadResponse(l.in, req)
		switch {
		case err != nil && l.allowance <= 0:
			return nil, errHeadersTooLarge // whatever it looks like, cut off there
		case err != nil:
			return nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
	}
}

// An exchange is one request and its answer on a line. It is the answer's body.
type exchange struct {
	// line is nil once the exchange has ended; err is what reading says from then on.
	line *line
	err  error
	ctx  context.Context
	body io.ReadCloser
	done func(*line)
	// last: the connection cannot be used again.
	last bool
	// stop undoes that the request's context ends what waits on the line. It says whether it has not.
	stop func() bool
	// sent brings the end of sending, where that goes on beside the answer; fault is what it ended with.
	sent  chan error
	fault error
}

// Read reads the answer's body. Its end is the end of the exchange.
func (x *exchange) Read(p []byte) (int, error) {
	if x.line == nil {
		return 0, x.err
	}
	n, err := x.body.Read(p)
	if err != nil {
		x.err = x.cause(err)
		x.end(err == io.EOF)
	}
	return n, x.err
}

// cause returns the context's error in place of what the line says when the context has ended it.
func (x *exchange) cause(err error) error {
	if why := x.ctx.Err(); why != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return why
	}
	return err
}

// Close ends the exchange. What is left of the body is not waited for.
func (x *exchange) Close() error {
	if x.line != nil {
		x.err = http.ErrBodyReadAfterClose
		x.end(false)
	}
	return nil
}

// end ends the exchange. Whole says that the answer has been read to its end.
func (x *exchange) end(whole bool) {
	l := x.line
	x.line = nil
	if l == nil {
		return
	}
	again := whole && !x.last && x.allSent()
	// Whether it was interrupted must be known before another attempt has the line.
	if !x.stop() || !again || l.broken != nil || !l.drained() {
		l.hangUp()
		if x.sent != nil {
			x.fault = <-x.sent
		}
		return
	}
	x.done(l)
}

// allSent says whether everything was sent.
func (x *exchange) allSent() bool {
	if x.sent == nil {
		return true
	}
	patience := time.NewTimer(sentWait)
	defer patience.Stop()
	select {
	case x.fault = <-x.sent:
		x.sent = nil
		return x.fault == nil
	case <-patience.C:
		return false
	}
}

// drained says whether nothing is left of what has come in: that would be taken for the next answer. TLS may
// have more than it has given out, the peer's leave included, which only reading tells.
func (l *line) drained() bool {
	if l.in.Buffered() > 0 {
		return false
	}
	if l.wire == l.below {
		return true
	}
	if err := l.wire.SetReadDeadline(longAgo); err != nil {
		return false
	}
	_, err := l.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded) && l.wire.SetReadDeadline(time.Time{}) == nil
}

// A probe finds out whether an idle connection was closed by its peer, without waiting.
type probe struct {
	raw  syscall.RawConn
	look func(fd uintptr) bool
	buf  [1]byte
	err  error
}

// on makes it a connection's. A connection that is none of the system's is never found closed.
func (p *probe) on(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return // it is closed already, and its first use will say so
	}
	p.raw = raw
	p.look = func(fd uintptr) bool {
		p.err = glance(fd, p.buf[:])
		return true
	}
}

// silent says whether the connection is open and nothing has come in. What has come in on an idle connection
// is its end, or the answer to nothing.
func (p *probe) silent() bool {
	if p.raw == nil {
		return true
	}
	p.err = nil
	err := p.raw.Read(p.look)
	return err == nil && p.err == nil
}
