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

// ErrBlocked is in the chain of every error that a refusal of the guard causes. Its text does not say why, so
// that a sender cannot use the dispatcher to scan a network.
var ErrBlocked = errors.New("the address is not allowed")

// A Guard decides which addresses connections may be opened to. By default it permits global unicast
// addresses. It refuses:
//
//   - loopback, private, shared, link-local, documentation, benchmarking, multicast and reserved networks
//   - IPv6 forms that carry an IPv4 address (mapped, NAT64, 6to4, Teredo)
//   - internal addresses of cloud platforms
//   - ports of well-known protocols other than HTTP
//
// The operator's allowlist (egress_allow) overrides all of this, ports included. An allowlisted host name
// does not override deniedToNames. Nothing overrides RefuseOwn.
//
// The guard checks twice. CheckURL checks the text of a URL, for early feedback. The dialer checks the real
// address when it opens a connection, and that check is the protection. A Guard is safe for concurrent use
// after RefuseOwn.
type Guard struct {
	// names are the allowlisted host names in lower case, without the final dot.
	names map[string]struct{}
	// networks are the allowlisted networks.
	networks []netip.Prefix
	// own are the addresses that this process listens on. An unspecified address means all addresses of this
	// machine.
	own    []netip.AddrPort
	public *ssrf.Guardian
}

// deniedToNames are networks that an allowlisted name does not permit: this machine, its links and the
// services of cloud platforms that return credentials. The name's owner decides what it resolves to, so these
// need an allowlisted network. IPv6 forms that carry an IPv4 address are included, because they can carry any
// of these addresses.
var deniedToNames = prefixes("0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 ::/96 fe80::/10 " +
	"64:ff9b::/96 64:ff9b:1::/48 2001::/32 2002::/16 " +
	// Platform services of Alibaba, Azure, Oracle, Amazon and Google.
	"100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd00:ec2::/32 fd20:ce::254/128")

func prefixes(list string) []netip.Prefix {
	var networks []netip.Prefix
	for text := range strings.FieldsSeq(list) {
		networks = append(networks, netip.MustParsePrefix(text))
	}
	return networks
}

// NewGuard returns a guard with an allowlist of networks in CIDR form, single addresses and host names. Nil
// permits only the default. The error names the invalid entry.
//
// A name matches the host of a URL exactly, in any case. It may then be dialed at any address that it
// resolves to, except those in deniedToNames.
func NewGuard(allow []string) (*Guard, error) {
	g := &Guard{
		names: make(map[string]struct{}),
		public: ssrf.New(
			ssrf.WithAnyPort(),
			// Azure's platform address is in a public range, but each machine there reaches its own host by
			// it.
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

// allow adds an entry to the allowlist.
func (g *Guard) allow(entry string) error {
	if strings.Contains(entry, "/") {
		network, err := netip.ParsePrefix(entry)
		switch {
		case err != nil:
			return errors.New("not a network such as 10.1.0.0/16")
		case network.Addr().Is4In6():
			return errors.New("write the network in its IPv4 form")
		case network.Masked() != network:
			return fmt.Errorf("has bits set after the prefix length; write %s", network.Masked())
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
	name, err := normalizeHost(entry)
	if err == nil {
		err = checkName(name)
	}
	if err != nil {
		return fmt.Errorf("not a network, an address or a host name: %w", err)
	}
	g.names[name] = struct{}{}
	return nil
}

// RefuseOwn refuses the addresses of this process's listeners, by address and by name, whatever the allowlist
// says. A listener on an unspecified address is refused at every address of this machine. Nil listeners are
// ignored. The caller must call it once, before another goroutine uses the guard.
func (g *Guard) RefuseOwn(listeners ...net.Addr) {
	for _, l := range listeners {
		if tcp, ok := l.(*net.TCPAddr); ok {
			at := tcp.AddrPort()
			g.own = append(g.own, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
}

// allowsName reports whether a host is allowlisted by name.
func (g *Guard) allowsName(host string) bool {
	if len(g.names) == 0 {
		return false
	}
	_, ok := g.names[strings.TrimSuffix(strings.ToLower(host), ".")]
	return ok
}

// allowsNetwork reports whether an address is in an allowlisted network.
func (g *Guard) allowsNetwork(addr netip.Addr) bool { return contains(g.networks, addr) }

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// A decision is the guard's answer for one address.
type decision int

const (
	refused decision = iota
	// public addresses are permitted by default.
	public
	// allowlisted addresses are permitted by the operator.
	allowlisted
)

// An addressCheck decides about a real address. It treats an IPv4 address in IPv6 form as the IPv4 address.
type addressCheck func(addr netip.Addr, port uint16) decision

// decide checks an address of a URL, or of a name that is not allowlisted.
func (g *Guard) decide(addr netip.Addr, port uint16) decision {
	return g.decideUnless(addr, port, func(addr netip.Addr) bool {
		return g.public.SafeAddr(addr) != nil || isDeniedPort(port)
	})
}

// decideNamed checks an address that an allowlisted name resolves to. The allowlist includes all ports.
func (g *Guard) decideNamed(addr netip.Addr, port uint16) decision {
	return g.decideUnless(addr, port, func(addr netip.Addr) bool { return contains(deniedToNames, addr) })
}

// decideUnless refuses the addresses of this process. It permits allowlisted addresses, and others unless
// denied is true.
func (g *Guard) decideUnless(addr netip.Addr, port uint16, denied func(netip.Addr) bool) decision {
	addr = addr.Unmap()
	switch {
	case addr.Zone() != "", g.isOwn(addr, port):
		return refused
	case g.allowsNetwork(addr):
		return allowlisted
	case denied(addr):
		return refused
	}
	return public
}

// isOwn reports whether this process listens on an address. A connection to an unspecified address reaches
// this machine, so it counts as well.
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

// isOfThisMachine reports whether an address belongs to this machine. It queries the system each time,
// because addresses change. That is rare: isOwn calls it only for the port of an own listener.
func isOfThisMachine(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return true // unknown: refuse
	}
	return slices.ContainsFunc(networks, func(n net.Addr) bool {
		ip, ok := n.(*net.IPNet)
		return ok && ip.IP.Equal(addr.AsSlice())
	})
}

// control is the ControlContext of a dialer. It checks the address that the kernel is about to connect to.
// Every connection passes here, so this is the check that protects against DNS rebinding.
func (j addressCheck) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return ErrBlocked
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil || j(to.Addr(), to.Port()) == refused {
		return ErrBlocked
	}
	return nil
}

// isDeniedPort reports whether a port belongs to a protocol other than HTTP. A request there could forge a
// message in that protocol. Ports of services that speak HTTP are not in the list.
func isDeniedPort(port uint16) bool {
	_, found := slices.BinarySearch(deniedPorts[:], port)
	return found
}

// deniedPorts is sorted for a binary search.
var deniedPorts = [...]uint16{
	0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
	104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 138, 139, 143, 161, 162, 179, 389, 427, 445,
	465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 873, 989, 990,
	993, 995, 1433, 1434, 1521, 1719, 1720, 1723, 1883, 2049, 3306, 3389, 3659, 4045, 4190, 5060, 5061,
	5432, 5672, 5900, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 8883, 9042, 9092, 11211,
	26379, 27017, 27018, 27019, 33060,
}
