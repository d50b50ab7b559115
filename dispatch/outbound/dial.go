package outbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Resolver looks names up; *net.Resolver is one. The network is "ip", "ip4" or "ip6".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	// dialTimeout ends name lookup and connecting, and then a handshake, also where the attempt's own timeout
	// is longer.
	dialTimeout = 10 * time.Second
	// fallbackDelay is how long the first address family has a lead over the second (RFC 8305 calls it
	// connection attempt delay).
	fallbackDelay = 300 * time.Millisecond
	// minDialTimeout is the least that one address of several gets.
	minDialTimeout = 2 * time.Second
)

// A dialer opens connections that the guard allows, and tells the attempt how long the parts of that took.
type dialer struct {
	guard    *Guard
	resolver Resolver
	health   resolverHealth
	// Both ask the guard about the very address; named is for hosts that were allowed by name.
	guarded, named net.Dialer
}

func newDialer(g *Guard, r Resolver) *dialer {
	d := &dialer{guard: g, resolver: r}
	d.guarded.ControlContext = judge(g.judge).control
	d.named.ControlContext = judge(g.judgeNamed).control
	d.health.resolver = r
	return d
}

// dial connects an attempt with a host. Its errors show no address.
func (d *dialer) dial(a *attempt, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(a, dialTimeout)
	defer cancel()
	start := time.Now()
	a.phase = phaseDNS
	addrs, dialer, err := d.resolve(ctx, host, port)
	resolved := time.Now()
	a.dns = resolved.Sub(start)
	if err != nil {
		return nil, err
	}
	a.phase = phaseConnect
	c, err := race(ctx, dialer, addrs)
	a.connect = time.Since(resolved)
	return c, err
}

// resolve returns the addresses that may be dialled for a host, and the dialer to use. A name with one
// address that is refused is refused altogether, but for addresses that the operator allowed: such a name
// has no business pointing there, and the one answer that does not is no better than the one that does.
func (d *dialer) resolve(ctx context.Context, host string,
	port uint16) ([]netip.AddrPort, *net.Dialer, error) {
	normal := strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(normal); err == nil {
		if d.guard.judge(addr, port) == refused {
			return nil, nil, ErrBlocked
		}
		return withPort([]netip.Addr{addr}, port), &d.guarded, nil
	}
	if endsInNumber(normal) {
		return nil, nil, ErrBlocked
	}
	found, err := d.lookup(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	by, dialer := d.guard.judge, &d.guarded
	if d.guard.allowsName(normal) {
		by, dialer = d.guard.judgeNamed, &d.named
	}
	var allowed, excepts []netip.Addr
	for _, addr := range found {
		switch by(addr, port) {
		case excepted:
			excepts = append(excepts, addr)
			fallthrough
		case public:
			allowed = append(allowed, addr)
		}
	}
	if len(allowed) < len(found) {
		allowed = excepts
	}
	if len(allowed) == 0 {
		return nil, nil, ErrBlocked
	}
	return withPort(allowed, port), dialer, nil
}

// lookup asks the resolver, within three fifths of the attempt's timeout, so that one fifth is left to find
// out why no answer came.
func (d *dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	patience := dialTimeout
	if a := attemptOf(ctx); a != nil {
		patience = min(patience, a.timeout)
	}
	within, cancel := context.WithTimeout(ctx, patience*3/5)
	defer cancel()
	began := time.Now()
	addrs, err := d.resolver.LookupNetIP(within, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if err := d.health.note(ctx, err, began, min(probeTimeout, patience/5)); err != nil {
		return nil, err
	}
	return addrs, nil
}

func withPort(addrs []netip.Addr, port uint16) []netip.AddrPort {
	out := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		out[i] = netip.AddrPortFrom(addr.Unmap(), port)
	}
	return out
}

// race dials the addresses of the first one's family in turn, and from fallbackDelay on, or when they have
// failed, those of the other family beside them. The first connection wins, others are closed. The error is
// the first family's.
func race(ctx context.Context, d *net.Dialer, addrs []netip.AddrPort) (net.Conn, error) {
	var first, second []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	if len(second) == 0 {
		return inTurn(ctx, d, first)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		net.Conn
		err   error
		first bool
	}
	results := make(chan result)
	start := func(family []netip.AddrPort, isFirst bool) {
		c, err := inTurn(ctx, d, family)
		select {
		case results <- result{c, err, isFirst}:
		case <-ctx.Done():
			if c != nil {
				c.Close() // lost the race; nothing was sent on it
			}
		}
	}
	go start(first, true)
	lead := time.NewTimer(fallbackDelay)
	defer lead.Stop()
	var firstErr error
	for running, secondStarted := 1, false; ; {
		select {
		case <-lead.C:
		case r := <-results:
			if r.err == nil {
				return r.Conn, nil
			}
			running--
			if r.first || firstErr == nil {
				firstErr = r.err
			}
			if secondStarted && running == 0 {
				return nil, firstErr
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !secondStarted {
			secondStarted = true
			running++
			go start(second, false)
		}
	}
}

// inTurn dials one address after the other; each gets an equal part of the time that is left.
func inTurn(ctx context.Context, d *net.Dialer, addrs []netip.AddrPort) (net.Conn, error) {
	var firstErr error
	for i, addr := range addrs {
		c, err := dialOne(ctx, d, addr, len(addrs)-i)
		if err == nil {
			return c, nil
		}
		if firstErr == nil {
			firstErr = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, firstErr
}

func dialOne(ctx context.Context, d *net.Dialer, addr netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		part := max(time.Until(deadline)/time.Duration(left), minDialTimeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, part)
		defer cancel()
	}
	return d.DialContext(ctx, "tcp", addr.String())
}

// errNoNameServer is a lookup that failed because no name server answers anybody: our own trouble, not the
// receiver's.
var errNoNameServer = errors.New("no name server answers")

const (
	// resolverDoubt is how long a probe without an answer proves that no name server answers.
	resolverDoubt = 5 * time.Second
	// probeTimeout bounds the question that finds out whether they do.
	probeTimeout = time.Second
	// probeName never exists (RFC 6761), and any name server can say so.
	probeName = "probe.invalid."
)

// resolverHealth tells a name whose own servers are silent from a resolver that answers nobody. Only the
// second is our trouble; taking the first for it would divert a callback for ever.
type resolverHealth struct {
	resolver Resolver

	// answered is when a name server last answered anything; back, when one did for the first time after a
	// probe had got no answer. Both are in Unix nanoseconds. down: none has since that probe.
	answered, back atomic.Int64
	down           atomic.Bool

	probing sync.Mutex // one probe at a time; it guards silent
	// silent is when the last probe got no answer.
	silent time.Time
}

// answer notes that a name server has answered.
func (h *resolverHealth) answer() {
	now := time.Now().UnixNano()
	h.answered.Store(now)
	if h.down.CompareAndSwap(true, false) {
		h.back.Store(now)
	}
}

// note records how a lookup that began then has ended, and returns its error, or errNoNameServer in its
// place. To know which, it may have to probe, for at most patience; a caller whose context ends does not wait
// for it.
func (h *resolverHealth) note(ctx context.Context, err error, began time.Time, patience time.Duration) error {
	switch {
	case err == nil || isAnswer(err):
		h.answer()
		return err
	case isLocalResource(err) || errors.Is(err, context.Canceled):
		return err
	case cannotAskResolver(err):
		return errNoNameServer
	}
	found := make(chan error, 1)
	go func() { found <- h.doubt(err, began, patience) }()
	select {
	case err := <-found:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// doubt returns the error of a lookup that got no answer, or errNoNameServer.
func (h *resolverHealth) doubt(err error, began time.Time, patience time.Duration) error {
	half := began.Add(time.Since(began) / 2)
	h.probing.Lock()
	defer h.probing.Unlock()
	// Name servers that answer by now say nothing of the time in which this lookup waited: it may have asked
	// before.
	before := func() bool { return began.UnixNano() < h.back.Load() }
	switch {
	case before(), h.down.Load() && time.Since(h.silent) < resolverDoubt:
		return errNoNameServer
	case h.answered.Load() > half.UnixNano():
		// Only an answer from the second half of that time counts: an older one may be the last before they
		// fell silent.
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, probeErr := h.resolver.LookupNetIP(ctx, "ip4", probeName); probeErr == nil || isAnswer(probeErr) {
		h.answer()
		if before() {
			return errNoNameServer
		}
		return err
	}
	h.silent = time.Now()
	h.down.Store(true)
	return errNoNameServer
}
