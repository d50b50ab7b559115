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

// A Resolver resolves host names; *net.Resolver implements it. network is "ip", "ip4" or "ip6".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	// dialTimeout bounds lookup and connect together, and then the TLS handshake. It applies even if the
	// attempt's own timeout is longer.
	dialTimeout = 10 * time.Second
	// fallbackDelay is how long the first address family is dialed alone. RFC 8305 calls it the connection
	// attempt delay.
	fallbackDelay = 300 * time.Millisecond
	// minDialTimeout is the minimum for one of several addresses.
	minDialTimeout = 2 * time.Second
)

// A dialer opens connections that the guard permits. It records in the attempt how long each part took.
type dialer struct {
	guard    *Guard
	resolver Resolver
	health   resolverHealth
	// guarded and named both check the real address just before they connect. named is for hosts allowlisted
	// by name.
	guarded, named net.Dialer
	// mail is guarded for mail servers.
	mail net.Dialer
}

func newDialer(g *Guard, r Resolver) *dialer {
	d := &dialer{guard: g, resolver: r}
	d.guarded.ControlContext = addressCheck(g.decide).control
	d.named.ControlContext = addressCheck(g.decideNamed).control
	d.mail.ControlContext = addressCheck(g.decideMail).control
	d.health.resolver = r
	return d
}

// dial connects an attempt to a host. Its errors contain no address.
func (d *dialer) dial(a *attempt, host string, port uint16) (net.Conn, error) {
	return d.connect(a, host, port, d.guard.decide, &d.guarded)
}

// dialMail is dial for a mail server.
func (d *dialer) dialMail(a *attempt, host string, port uint16) (net.Conn, error) {
	return d.connect(a, host, port, d.guard.decideMail, &d.mail)
}

// connect connects an attempt to a host. decide and guarded check its addresses unless the host is
// allowlisted by name.
func (d *dialer) connect(
	a *attempt, host string, port uint16, decide addressCheck, guarded *net.Dialer,
) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(a, dialTimeout)
	defer cancel()
	start := time.Now()
	a.phase = phaseDNS
	addrs, dialer, err := d.resolve(ctx, host, port, decide, guarded)
	resolved := time.Now()
	a.dns = resolved.Sub(start)
	if err != nil {
		return nil, err
	}
	a.phase = phaseConnect
	c, err := dialParallel(ctx, dialer, addrs)
	a.connect = time.Since(resolved)
	return c, err
}

// resolve returns the addresses of a host that may be dialed, and the dialer for them.
//
// If the guard refuses one of the addresses, only allowlisted addresses remain. A public name has no reason
// to point to a private address, so its other answers are not trusted either.
func (d *dialer) resolve(
	ctx context.Context, host string, port uint16, decide addressCheck, guarded *net.Dialer,
) ([]netip.AddrPort, *net.Dialer, error) {
	normal := strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(normal); err == nil {
		if decide(addr, port) == refused {
			return nil, nil, ErrBlocked
		}
		return withPort([]netip.Addr{addr}, port), guarded, nil
	}
	if endsInNumber(normal) {
		return nil, nil, ErrBlocked
	}
	found, err := d.lookup(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	dialer := guarded
	if d.guard.allowsName(normal) {
		decide, dialer = d.guard.decideNamed, &d.named
	}
	var permitted, listed []netip.Addr
	for _, addr := range found {
		switch decide(addr, port) {
		case allowlisted:
			listed = append(listed, addr)
			fallthrough
		case public:
			permitted = append(permitted, addr)
		}
	}
	if len(permitted) < len(found) {
		permitted = listed
	}
	if len(permitted) == 0 {
		return nil, nil, ErrBlocked
	}
	return withPort(permitted, port), dialer, nil
}

// lookup resolves a host within three fifths of the attempt's timeout (at most dialTimeout). If no answer
// comes, one fifth is left for a probe of the name servers.
func (d *dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	timeout := dialTimeout
	if a := attemptOf(ctx); a != nil {
		timeout = min(timeout, a.timeout)
	}
	within, cancel := context.WithTimeout(ctx, timeout*3/5)
	defer cancel()
	started := time.Now()
	addrs, err := d.resolver.LookupNetIP(within, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if err := d.health.record(ctx, err, started, min(probeTimeout, timeout/5)); err != nil {
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

// dialParallel dials the two address families as RFC 8305 describes. It dials the family of the first address
// in turn. After fallbackDelay, or when they have all failed, it also dials the other family. The first
// connection wins and any other is closed. If all fail, the error is that of the first family.
func dialParallel(ctx context.Context, d *net.Dialer, addrs []netip.AddrPort) (net.Conn, error) {
	var first, second []netip.AddrPort
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	if len(second) == 0 {
		return dialSerial(ctx, d, first)
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
		c, err := dialSerial(ctx, d, family)
		select {
		case results <- result{c, err, isFirst}:
		case <-ctx.Done():
			if c != nil {
				c.Close() // the other family was first; nothing was sent on this one
			}
		}
	}
	go start(first, true)
	fallback := time.NewTimer(fallbackDelay)
	defer fallback.Stop()
	var firstErr error
	for running, secondStarted := 1, false; ; {
		select {
		case <-fallback.C:
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

// dialSerial dials one address after the other. Each gets an equal part of the remaining time.
func dialSerial(ctx context.Context, d *net.Dialer, addrs []netip.AddrPort) (net.Conn, error) {
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

// dialOne dials one address within its part of the remaining time, or minDialTimeout if that is longer. left
// is the number of addresses not yet tried. The last one gets all the remaining time.
func dialOne(ctx context.Context, d *net.Dialer, addr netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		part := max(time.Until(deadline)/time.Duration(left), minDialTimeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, part)
		defer cancel()
	}
	return d.DialContext(ctx, "tcp", addr.String())
}

// errNoNameServer means that no name server answers any query. It is a failure of this machine, not of the
// receiver.
var errNoNameServer = errors.New("no name server answers")

const (
	// probeValidFor is how long a failed probe proves that no name server answers, without another probe.
	probeValidFor = 5 * time.Second
	// probeTimeout bounds a probe of the name servers.
	probeTimeout = time.Second
	// probeName never exists (RFC 6761), so any working name server answers it at once.
	probeName = "probe.invalid."
)

// resolverHealth distinguishes a name whose own servers are silent from name servers that answer nothing.
// Only the second is a local failure. To treat the first as one would divert a callback for ever without a
// charge.
type resolverHealth struct {
	resolver Resolver

	// answeredAt is the last answer of any name server. recoveredAt is the first answer after a failed probe.
	// Both are Unix nanoseconds. down is true from a failed probe until the next answer.
	answeredAt, recoveredAt atomic.Int64
	down                    atomic.Bool

	probing sync.Mutex // permits one probe at a time and guards probeFailedAt
	// probeFailedAt is when the last probe got no answer.
	probeFailedAt time.Time
}

// recordAnswer records that a name server has answered.
func (h *resolverHealth) recordAnswer() {
	now := time.Now().UnixNano()
	h.answeredAt.Store(now)
	if h.down.CompareAndSwap(true, false) {
		h.recoveredAt.Store(now)
	}
}

// record records the result of a lookup that started at the given time. It returns the lookup's error, or
// errNoNameServer in its place. To decide, it may probe the name servers for at most timeout. If ctx ends
// first, it returns without waiting for the probe.
func (h *resolverHealth) record(
	ctx context.Context, err error, started time.Time, timeout time.Duration,
) error {
	switch {
	case err == nil || isNameServerAnswer(err):
		h.recordAnswer()
		return err
	case localResource(err) != "" || errors.Is(err, context.Canceled):
		return err
	case resolverUnreachable(err):
		return errNoNameServer
	}
	found := make(chan error, 1)
	go func() { found <- h.confirm(err, started, timeout) }()
	select {
	case err := <-found:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// confirm returns err for a lookup without an answer if only this name is silent, else errNoNameServer. It
// probes the name servers unless recent lookups already decide.
func (h *resolverHealth) confirm(err error, started time.Time, timeout time.Duration) error {
	half := started.Add(time.Since(started) / 2)
	h.probing.Lock()
	defer h.probing.Unlock()
	// If the name servers recovered after this lookup started, later answers prove nothing about its wait.
	recoveredSince := func() bool { return started.UnixNano() < h.recoveredAt.Load() }
	switch {
	case recoveredSince(), h.down.Load() && time.Since(h.probeFailedAt) < probeValidFor:
		return errNoNameServer
	case h.answeredAt.Load() > half.UnixNano():
		// Another lookup was answered in the second half of the wait, so the servers worked. An answer in the
		// first half may have been the last before they failed.
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, probeErr := h.resolver.LookupNetIP(ctx, "ip4", probeName)
	if probeErr == nil || isNameServerAnswer(probeErr) {
		h.recordAnswer()
		if recoveredSince() {
			return errNoNameServer
		}
		return err
	}
	h.probeFailedAt = time.Now()
	h.down.Store(true)
	return errNoNameServer
}
