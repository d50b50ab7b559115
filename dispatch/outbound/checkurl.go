package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"golang.org/x/net/idna"
)

// MaxURLBytes is the maximum length of a URL in bytes.
const MaxURLBytes = 2048

// A refusal is an ErrBlocked with its own text. CheckURL returns it for a URL that the guard refuses.
type refusal string

// Error returns the text.
func (r refusal) Error() string { return string(r) }

// Is makes errors.Is(r, ErrBlocked) true.
func (r refusal) Is(err error) bool { return err == ErrBlocked }

// CheckURL returns nil if a URL may be stored for sending, else an error of one sentence for people.
// errors.Is with ErrBlocked is true if the guard refuses the address. Otherwise the URL is invalid.
//
// CheckURL resolves no name, so it gives early feedback only. The dialer checks the real address again and
// may still block it.
func (g *Guard) CheckURL(raw string) error {
	u, err := parseURL(raw, "http", "https")
	if err != nil {
		return err
	}
	port, err := portOf(u)
	if err != nil {
		return err
	}
	host, err := normalizeHost(u.Hostname())
	if err != nil {
		return err
	}
	return g.checkHost(host, port)
}

// parseURL parses the URL of a request. Only the sink of an alert may be a mail server.
func (r *Request) parseURL() (*url.URL, error) {
	if r.Signer == sign.SealedURL {
		return parseURL(r.URL, "http", "https", "smtp", "smtps")
	}
	return parseURL(r.URL, "http", "https")
}

// parseURL parses a URL and checks its form: one of the schemes, a host, no credentials, no fragment.
func parseURL(raw string, schemes ...string) (*url.URL, error) {
	if len(raw) > MaxURLBytes {
		return nil, fmt.Errorf("url has %d bytes; at most %d are allowed", len(raw), MaxURLBytes)
	}
	if strings.ContainsFunc(raw, func(c rune) bool { return c <= 0x20 || c == 0x7f }) {
		return nil, errors.New("url contains a space or a control character")
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error contains the URL, which may contain secrets.
		return nil, errors.New("url cannot be parsed")
	}
	switch {
	case !slices.Contains(schemes, u.Scheme):
		return nil, errors.New("url must begin with http:// or https://")
	case u.Opaque != "" || u.Host == "":
		return nil, errors.New("url has no host")
	case u.User != nil:
		return nil, errors.New("url must not contain a user name or a password; use an Authorization header")
	case strings.Contains(raw, "#"):
		return nil, errors.New("url must not have a fragment (#…): it is never sent")
	}
	return u, nil
}

// defaultPorts are the ports of URLs without one.
var defaultPorts = map[string]uint16{"http": 80, "https": 443, "smtp": 587, "smtps": 465}

// portOf returns the port of a URL, or the default port of its scheme.
func portOf(u *url.URL) (uint16, error) {
	text := u.Port()
	if text == "" {
		if strings.HasSuffix(u.Host, ":") {
			return 0, errors.New("url has a colon but no port")
		}
		return defaultPorts[u.Scheme], nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, errors.New("port must be 1 to 65535")
	}
	return uint16(port), nil
}

// normalizeHost returns a host as the resolver gets it: ASCII, lower case, without the final dot. IDNA maps
// equivalent Unicode characters first, so that circled digits and full-width dots become the address that
// would be dialed.
func normalizeHost(host string) (string, error) {
	if strings.Contains(host, ":") { // only an IPv6 address in brackets can contain a colon
		return strings.ToLower(host), nil
	}
	host, err := asciiHost(host)
	return strings.TrimSuffix(strings.ToLower(host), "."), err
}

// asciiHost converts an internationalised name to ASCII and returns any other host unchanged.
func asciiHost(host string) (string, error) {
	if parse.IsASCII([]byte(host)) {
		return host, nil
	}
	ascii, err := idna.Lookup.ToASCII(host)
	if err != nil {
		return "", errors.New("host is not a valid internationalised name")
	}
	return ascii, nil
}

// checkHost checks a host in its normalized form. An allowlisted name passes; the dialer checks the addresses
// that it resolves to.
func (g *Guard) checkHost(host string, port uint16) error {
	if err := g.checkLocalName(host); err != nil {
		return err
	}
	if g.allowsName(host) {
		return nil
	}
	if strings.Contains(host, "%") {
		return refusal("an address with a zone cannot be used")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkLiteral(addr, port)
	}
	if strings.Contains(host, ":") {
		return errors.New("host is not a valid IPv6 address")
	}
	if endsInNumber(host) {
		return refusal("host is an address in an unusual form; write it as four decimal numbers")
	}
	if err := checkName(host); err != nil {
		return err
	}
	// A name may resolve to an allowlisted network, where every port is allowed.
	if isDeniedPort(port) && len(g.networks) == 0 {
		return deniedPort(port)
	}
	return nil
}

const (
	allowHint = "; add the host to egress_allow to permit it"
	// addressHint is for hosts that egress_allow permits only by address.
	addressHint = "; add its address to egress_allow to permit it: "
)

// checkLiteral checks an address in a URL. The error says why the guard refuses it.
func (g *Guard) checkLiteral(addr netip.Addr, port uint16) error {
	if g.isOwn(addr.Unmap(), port) {
		return refusal("host and port are the dispatcher's own; it never sends to itself")
	}
	switch g.decide(addr, port) {
	case allowlisted:
		return nil
	case public:
		if addr.Is4In6() {
			return refusal("host is an IPv4 address in IPv6 form; write the IPv4 address")
		}
		return nil
	}
	if isDeniedPort(port) && g.decide(addr, 443) != refused {
		return deniedPort(port)
	}
	return refusal("host is not a public address" + allowHint)
}

func deniedPort(port uint16) error {
	return refusal(fmt.Sprintf("port %d is not used for HTTP"+allowHint, port))
}

// endsInNumber reports whether the last label of a host is a decimal or hexadecimal number. Some resolvers
// read such hosts as IPv4 addresses: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if parse.IsDigits(last) {
		return true
	}
	hex, ok := strings.CutPrefix(last, "0x")
	return ok && !strings.ContainsFunc(hex, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
}

// checkLocalName refuses names that by convention refer to this machine or to the metadata service of a cloud
// platform, unless egress_allow has a network with their usual address. host is normalized. An entry for the
// name itself is not enough, because its owner decides what it resolves to (see deniedToNames). The check
// serves early feedback: the dialer is what protects.
func (g *Guard) checkLocalName(host string) error {
	switch host {
	case "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost":
		return g.checkLoopback()
	case "metadata.google.internal", "metadata.goog", "instance-data.ec2.internal":
		if !g.allowsNetwork(netip.AddrFrom4([4]byte{169, 254, 169, 254})) {
			return refusal("host is a metadata service of a cloud platform" + addressHint + "169.254.169.254")
		}
	}
	if strings.HasSuffix(host, ".localhost") {
		return g.checkLoopback()
	}
	return nil
}

func (g *Guard) checkLoopback() error {
	if g.allowsNetwork(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || g.allowsNetwork(netip.IPv6Loopback()) {
		return nil
	}
	return refusal("host is a name of this machine" + addressHint + "127.0.0.1 or ::1")
}

// checkName returns nil if a normalized host can be a DNS name. It permits underscores: they are invalid in
// host names, but common in container networks.
func checkName(host string) error {
	if host == "" {
		return errors.New("host is empty")
	}
	if len(host) > 253 {
		return errors.New("host has more than 253 characters")
	}
	if endsInNumber(host) {
		return errors.New("host ends in a number")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("host has a part that is empty or longer than 63 characters")
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("host has a part that begins or ends with a hyphen")
		}
		if strings.ContainsFunc(label, isNoHostCharacter) {
			return errors.New("host contains a character that is not allowed in host names")
		}
	}
	return nil
}

func isNoHostCharacter(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
}
