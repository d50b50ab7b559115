package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"golang.org/x/net/idna"
)

// MaxURLBytes is the longest URL that can be sent to.
const MaxURLBytes = 2048

// A refusal is a URL that the guard would not let out. It is ErrBlocked with a sentence of its own.
type refusal string

// Error returns the sentence.
func (r refusal) Error() string { return string(r) }

// Is makes a refusal ErrBlocked.
func (r refusal) Is(err error) bool { return err == ErrBlocked }

// CheckURL judges a URL before anything is sent to it: nil, or one sentence for people. Errors that are
// ErrBlocked say that the guard refuses the place; the others, that the URL cannot be meant. A URL that
// passes may still be blocked when its name is resolved.
func (g *Guard) CheckURL(raw string) error {
	u, err := parseURL(raw)
	if err != nil {
		return err
	}
	port, err := portOf(u)
	if err != nil {
		return err
	}
	host, err := normalHost(u.Hostname())
	if err != nil {
		return err
	}
	return g.checkHost(host, port)
}

// parseURL parses what is at least well-formed: http or https, with a host, without what must not be sent.
func parseURL(raw string) (*url.URL, error) {
	if len(raw) > MaxURLBytes {
		return nil, fmt.Errorf("url has %d bytes; at most %d are allowed", len(raw), MaxURLBytes)
	}
	if strings.ContainsFunc(raw, func(c rune) bool { return c <= 0x20 || c == 0x7f }) {
		return nil, errors.New("url contains a space or a control character")
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's own text repeats the URL, with whatever secrets are in it.
		return nil, errors.New("url cannot be parsed")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("url must begin with http:// or https://")
	case u.Opaque != "" || u.Host == "":
		return nil, errors.New("url has no host")
	case u.User != nil:
		return nil, errors.New("url must not contain a user name or a password; use an Authorization header")
	case strings.Contains(raw, "#"):
		return nil, errors.New("url must not have a fragment: what follows # is never sent")
	}
	return u, nil
}

func portOf(u *url.URL) (uint16, error) {
	text := u.Port()
	if text == "" {
		if strings.HasSuffix(u.Host, ":") {
			return 0, errors.New("url has a colon but no port")
		}
		if u.Scheme == "https" {
			return 443, nil
		}
		return 80, nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, errors.New("port must be 1 to 65535")
	}
	return uint16(port), nil
}

// normalHost returns a host as it is looked up: in ASCII, lower case, without the dot at the end. It folds
// what Unicode calls the same, so that digits in circles and full-width dots show the address that they would
// be dialled as.
func normalHost(host string) (string, error) {
	if strings.Contains(host, ":") { // IPv6: only brackets can have brought a colon here
		return strings.ToLower(host), nil
	}
	host, err := asciiHost(host)
	return strings.TrimSuffix(strings.ToLower(host), "."), err
}

// asciiHost returns an internationalised name in ASCII, and every other host as it is.
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

// checkHost judges a host in its normal form.
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
	// A name may resolve into an allowed network, where every port is allowed.
	if isDeniedPort(port) && len(g.networks) == 0 {
		return deniedPort(port)
	}
	return nil
}

const (
	allowHint = "; egress_allow can permit it"
	// addressHint is for what no name in egress_allow permits.
	addressHint = "; egress_allow can permit it by the address, not by the name: "
)

func (g *Guard) checkLiteral(addr netip.Addr, port uint16) error {
	if g.isOwn(addr.Unmap(), port) {
		return refusal("host and port are the dispatcher's own; it never sends to itself")
	}
	switch g.judge(addr, port) {
	case excepted:
		return nil
	case public:
		if addr.Is4In6() {
			return refusal("host is an IPv4 address in IPv6 form; write the IPv4 address")
		}
		return nil
	}
	if isDeniedPort(port) && g.judge(addr, 443) != refused {
		return deniedPort(port)
	}
	return refusal("host is not a public address" + allowHint)
}

func deniedPort(port uint16) error {
	return refusal(fmt.Sprintf("port %d is not used for HTTP"+allowHint, port))
}

// endsInNumber says whether the last label of a host is a number in any of the bases that some resolvers take
// for part of an IPv4 address: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
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

// checkLocalName refuses the names that stand for this machine or for its platform's metadata wherever it
// runs, unless the operator allowed their networks: by name alone they lead nowhere (see neverByName).
func (g *Guard) checkLocalName(host string) error {
	switch host {
	case "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost":
		return g.checkLoopback()
	case "metadata.google.internal", "metadata.goog", "instance-data.ec2.internal":
		if !g.allowsNetwork(netip.AddrFrom4([4]byte{169, 254, 169, 254})) {
			return refusal("host is a name of this machine's platform" + addressHint + "169.254.169.254")
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

// checkName says whether a host in its normal form can be a name of the DNS. Underscores are let through:
// they are no host names, but container networks are full of them.
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
			return errors.New("host contains a character that no host name has")
		}
	}
	return nil
}

func isNoHostCharacter(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
}
