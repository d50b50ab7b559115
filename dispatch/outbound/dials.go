package outbound

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dials keeps net/http from opening connections that nobody needs.
//
// Its transport begins a dial for every request that finds no idle connection, and goes on with it when another
// connection becomes free for that request. While handshakes take longer than answers, a receiver so gets a new
// connection every few requests, hundreds for a thousand, and nearly all of them are closed unused; each costs as much
// as ten requests.
//
// So a dial is held back while there are as many connections to its destination, those being opened included, as
// attempts on the way there: one of them is free, or will be. There are then never more connections than there were
// attempts at once, as long as none ends.
type dials struct {
	mu sync.Mutex
	to map[place]*destination
}

// A place is what attempts have in common that can use the same connections, as far as it can be told from their URLs: the
// scheme, and host and port as they are spelled.
type place struct{ scheme, host string }

// A destination is a place that attempts are on the way to, or that there are connections to.
type destination struct {
	dials *dials
	place place
	// attempts are on the way; opened are the connections that there are, and those being opened.
	attempts, opened int
	// held are the attempts whose dial is held back, the first one first.
	held []*visit
}

// A visit is one attempt on the way to its destination. It is guarded by the dials' mutex, but for to, which is set before
// anybody else knows of it, and asked.
type visit struct {
	to *destination
	// asked: a dial was asked for, because no connection was idle.
	asked atomic.Bool
	// settled: the attempt has had a connection. left: it has ended.
	settled, left bool
	// opening is the connection that is being opened for it, as long as it has none; nil: none is.
	opening *opening
	// turn is not nil while its dial is held back. It brings what is to be opened, or nil if the dial is to be given up.
	turn chan *opening
}

// An opening is one connection, from its dial to its end.
type opening struct {
	to *destination
	// over: it does not count any more.
	over bool
}

// maxHold is how long a dial is held back at most. It is what a lost packet costs a connection that is being opened: those
// that are may take longer than another one would.
const maxHold = time.Second

// errUnwanted ends a dial that nobody waits for any more. Nobody sees it.
var errUnwanted = errors.New("the connection is not wanted any more")

func newDials() *dials { return &dials{to: make(map[place]*destination)} }

// enter says that an attempt is on the way; leave must follow.
func (d *dials) enter(v *visit, p place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.to[p]
	if n == nil {
		n = &destination{dials: d, place: p}
		d.to[p] = n
	}
	n.attempts++
	v.to = n
}

// leave says that the attempt has ended. If it got no connection, the one that is being opened for it does not count any
// more: it may hang, and others must not wait for it.
func (v *visit) leave() {
	n := v.to
	if n == nil {
		return
	}
	n.dials.mu.Lock()
	defer n.dials.mu.Unlock()
	n.attempts--
	v.left = true
	n.release(v, nil)
	v.opening.end()
	n.forget()
}

// connected says that the attempt has a connection: the one that was opened for it, or another one, and then the first is
// there for others.
func (v *visit) connected() {
	if !v.asked.Load() {
		return
	}
	v.to.dials.mu.Lock()
	defer v.to.dials.mu.Unlock()
	v.settled, v.opening = true, nil
	v.to.release(v, nil)
}

// begin returns when a dial for the attempt may go on, and counts its connection from then on, until close.
func (v *visit) begin(ctx context.Context) (*opening, error) {
	turn := v.ask()
	patience := time.NewTimer(maxHold)
	defer patience.Stop()
	var o *opening
	select {
	case o = <-turn:
	case <-patience.C:
		o = v.goOn(turn)
	case <-ctx.Done():
		o = v.goOn(turn) // and fails with its context
	}
	if o == nil {
		return nil, errUnwanted
	}
	return o, nil
}

// ask returns what brings the dial's turn. net/http asks a second time for one attempt where the connection that it got
// turned out to be closed; then it is not held back.
func (v *visit) ask() <-chan *opening {
	n := v.to
	n.dials.mu.Lock()
	defer n.dials.mu.Unlock()
	turn := make(chan *opening, 1)
	switch {
	case v.left:
		turn <- nil
		return turn
	case v.settled, v.turn != nil:
		turn <- n.open()
		return turn
	}
	v.asked.Store(true)
	v.turn = turn
	n.held = append(n.held, v)
	n.next()
	return turn
}

// goOn ends the hold of a dial, if it is not decided meanwhile.
func (v *visit) goOn(turn <-chan *opening) *opening {
	n := v.to
	n.dials.mu.Lock()
	defer n.dials.mu.Unlock()
	if v.turn != nil {
		v.opening = n.open()
		n.release(v, v.opening)
	}
	return <-turn
}

// close ends the count of a connection that was closed, or never opened.
func (o *opening) close() {
	if o == nil {
		return
	}
	o.to.dials.mu.Lock()
	defer o.to.dials.mu.Unlock()
	o.end()
}

// open counts one more connection.
func (n *destination) open() *opening {
	n.opened++
	return &opening{to: n}
}

// end counts one less, once.
func (o *opening) end() {
	if o == nil || o.over {
		return
	}
	o.over = true
	o.to.opened--
	o.to.next()
	o.to.forget()
}

// next lets dials go on that are needed.
func (n *destination) next() {
	for len(n.held) > 0 && n.opened < n.attempts {
		v := n.held[0]
		v.opening = n.open()
		n.release(v, v.opening)
	}
}

// release ends the hold of a dial, if it is held back: it opens what it is given, or nothing.
func (n *destination) release(v *visit, o *opening) {
	if v.turn == nil {
		return
	}
	v.turn <- o
	v.turn = nil
	n.held = slices.DeleteFunc(n.held, func(other *visit) bool { return other == v })
}

// forget drops a destination that nobody is on the way to, and that there are no connections to.
func (n *destination) forget() {
	if n.attempts == 0 && n.opened == 0 && n.dials.to[n.place] == n {
		delete(n.dials.to, n.place)
	}
}
