package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrBlocked is in the chain of every refusal of the guard. Its text says nothing of the address, so that a
// caller cannot use the dispatcher to map a network.
var ErrBlocked = errors.New("the address is not allowed")

// A Guard decides where connections may go. By default that is global unicast only: no loopback, private,
// shared, link-local, documentation, benchmarking, multicast or reserved network, none of the IPv6 forms
// that carry an IPv4 address (mapped, NAT64, 6to4, Teredo), no cloud platform's internal address, and no
// port of a well-known protocol that is not HTTP. A network or an address that the operator allows is
// excepted from all of this, ports included. So is a host name, but for what a name never leads to by
// itself (see neverByName). Nothing is excepted from RefuseOwn.
//
// It decides twice: CheckURL on the text, for early feedback; and when a connection is opened, on the real
// address, which is the decision that counts. It is safe for concurrent use; RefuseOwn comes before that.
type Guard struct {
	// names are allowed host names in lower case, without the dot at the end.
	names map[string]struct{}
	// networks are allowed, whatever the checks below say.
	networks []netip.Prefix
	// own is where this process listens, with port; an unspecified address stands for all of this machine's.
	own    []netip.AddrPort
	public *ssrf.Guardian
}

// neverByName is where an allowed name does not lead unless a network that covers the address is allowed,
// too: this machine, its links, and what cloud platforms answer credentials from. The name's owner decides
// what it resolves to. Forms of IPv6 that carry an IPv4 address are among them, for they could carry any of
// these.
var neverByName = prefixes("0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 ::/96 fe80::/10 " +
	"64:ff9b::/96 64:ff9b:1::/48 2001::/32 2002::/16 " +
	// The last are of Alibaba, Azure, Oracle, Amazon and Google.
	"100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd00:ec2::/32 fd20:ce::254/128")

func prefixes(list string) []netip.Prefix {
	var networks []netip.Prefix
	for text := range strings.FieldsSeq(list) {
		networks = append(networks, netip.MustParsePrefix(text))
	}
	return networks
}

// NewGuard returns a guard with exceptions: networks in CIDR form, single addresses, or host names. A name
// matches the host of a URL exactly, in any case; it may then be dialled at any address that it resolves
// to, but for loopback, link-local and metadata addresses. Nil allows nothing beyond the default. The error
// names the invalid entry.
func NewGuard(allow []string) (*Guard, error) {
	g := &Guard{
		names: make(map[string]struct{}),
		public: ssrf.New(
			ssrf.WithAnyPort(),
			// Azure's platform address lies in a public range, yet every machine there reaches its own host
			// by it.
			ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
		),
	}
	for _, entry := range allow {
		if err := g.allow(strings.TrimSpace(entry)); err != nil {
			return nil, fmt.Errorf("egress allow list: %q: %w", entry, err)
		}
	}
	return g, nil
}

func (g *Guard) allow(entry string) error {
	if strings.Contains(entry, "/") {
		network, err := netip.ParsePrefix(entry)
		switch {
		case err != nil:
			return errors.New("not a network such as 10.1.0.0/16")
		case network.Addr().Is4In6():
			return errors.New("write the network in its IPv4 form")
		case network.Masked() != network:
			return fmt.Errorf("has bits set beyond its length; %s would be the network", network.Masked())
		}
		g.networks = append(g.networks, network)
		return nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		if addr.Zone() != "" {
			return errors.New("an address with a zone cannot be allowed")
		}
		addr = addr.Unmap()
		g.networks = append(g.networks, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	name, err := normalHost(entry)
	if err == nil {
		err = checkName(name)
	}
	if err != nil {
		return fmt.Errorf("neither a network, nor an address, nor a host name: %w", err)
	}
	g.names[name] = struct{}{}
	return nil
}

// RefuseOwn names the listeners of this process, which are never sent to: not by address and not by name,
// whatever is allowed. One on an unspecified address is refused at every address of this machine. Nil ones
// are left out. It is called once, before the guard is used by another goroutine.
func (g *Guard) RefuseOwn(listeners ...net.Addr) {
	for _, l := range listeners {
		if tcp, ok := l.(*net.TCPAddr); ok {
			at := tcp.AddrPort()
			g.own = append(g.own, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
}

// allowsName says whether the operator allowed a host by its name.
func (g *Guard) allowsName(host string) bool {
	if len(g.names) == 0 {
		return false
	}
	_, ok := g.names[strings.TrimSuffix(strings.ToLower(host), ".")]
	return ok
}

// allowsNetwork says whether the operator allowed a network that the address is in.
func (g *Guard) allowsNetwork(addr netip.Addr) bool { return contains(g.networks, addr) }

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// A verdict is what the guard says of an address.
type verdict int

const (
	refused verdict = iota
	// public addresses may be dialled by default.
	public
	// excepted ones are allowed by the operator.
	excepted
)

// A judge decides about a real address. IPv4 addresses in IPv6 form are judged as what they are.
type judge func(addr netip.Addr, port uint16) verdict

// judge judges an address that a URL names, or that a name leads to which the operator has not allowed.
func (g *Guard) judge(addr netip.Addr, port uint16) verdict {
	return g.judgeUnless(addr, port, func(addr netip.Addr) bool {
		return g.public.SafeAddr(addr) != nil || isDeniedPort(port)
	})
}

// judgeNamed judges an address that an allowed name leads to.
func (g *Guard) judgeNamed(addr netip.Addr, port uint16) verdict {
	return g.judgeUnless(addr, port, func(addr netip.Addr) bool { return contains(neverByName, addr) })
}

// judgeUnless refuses our own address, and of those that the operator has not allowed the denied ones.
func (g *Guard) judgeUnless(addr netip.Addr, port uint16, denied func(netip.Addr) bool) verdict {
	addr = addr.Unmap()
	switch {
	case addr.Zone() != "", g.isOwn(addr, port):
		return refused
	case g.allowsNetwork(addr):
		return excepted
	case denied(addr):
		return refused
	}
	return public
}

// isOwn says whether this process listens there. The kernel takes an unspecified address for this machine.
func (g *Guard) isOwn(addr netip.Addr, port uint16) bool {
	for _, own := range g.own {
		switch at := own.Addr(); {
		case own.Port() != port:
		case at == addr, addr.IsUnspecified(), at.IsUnspecified() && isOfThisMachine(addr):
			return true
		}
	}
	return false
}

// isOfThisMachine says whether the address is one of this machine's. It asks the system, for addresses come
// and go: only what has the port of an own listener gets here.
func isOfThisMachine(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return true // it may be
	}
	return slices.ContainsFunc(networks, func(n net.Addr) bool {
		ip, ok := n.(*net.IPNet)
		return ok && ip.IP.Equal(addr.AsSlice())
	})
}

// control is a dialer's last word, on the address that the kernel is about to connect to. Everything that
// opens a connection passes here.
func (j judge) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return ErrBlocked
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil || j(to.Addr(), to.Port()) == refused {
		return ErrBlocked
	}
	return nil
}

// isDeniedPort says whether a port is known for a protocol that is not HTTP: what is sent there is a forged
// message in that protocol at best. Ports of services that speak HTTP are not among them.
func isDeniedPort(port uint16) bool {
	_, found := slices.BinarySearch(deniedPorts[:], port)
	return found
}

// deniedPorts is sorted.
var deniedPorts = [...]uint16{
	0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
	104, 109, 110,
	111, 113, 115, 117, 119, 123, 135, 137, 138, 139, 143, 161, 162, 179, 389, 427, 445, 465, 512, 513, 514,
	515, 526,
	530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 873, 989, 990, 993, 995, 1433, 1434, 1521, 1719,
	1720, 1723,
	1883, 2049, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 5672, 5900, 6000, 6379, 6566, 6665, 6666,
	6667, 6668, 6669,
	6679, 6697, 8883, 9042, 9092, 11211, 26379, 27017, 27018, 27019, 33060,
}
