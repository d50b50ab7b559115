package store

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AddressLane returns the default lane of an address: its scheme, host and port, in lower case.
func AddressLane(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("is not an http or https address such as https://shop.example/notify")
	}
	return u.Scheme + "://" + net.JoinHostPort(lowerASCII(u.Hostname()), portOf(u)), nil
}

// lowerASCII is a host in lower case. Other letters stay as they are: some, as U+0130, would become those of
// another host.
func lowerASCII(host string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, host)
}

// IsAddressLane says whether a lane has the form of an address, in any case: only callbacks to that address
// are in it.
func IsAddressLane(lane string) bool {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(lane) >= len(scheme) && strings.EqualFold(lane[:len(scheme)], scheme) {
			return true
		}
	}
	return false
}

// SameHost says whether two addresses have the same scheme, host and port. One that cannot be parsed has no
// other's.
func SameHost(a, b string) bool {
	x, err := AddressLane(a)
	if err != nil {
		return false
	}
	y, err := AddressLane(b)
	return err == nil && x == y
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// AnyHost in a list of hosts names all of them.
const AnyHost = "*"

// CheckHost says whether a text names a host in a list of hosts: nil, or one sentence. It is a host name or
// an IP address, alone (any port) or with a port.
func CheckHost(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "1"
		if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has a port that is not 1 to 65535", text)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if host == "" || len(host) > 253 || strings.ContainsAny(host, "/:@*?#%\\[] ") {
		return fmt.Errorf("%q is not a host such as shop.example or shop.example:8443", text)
	}
	for i := range len(host) {
		if c := host[i]; c <= ' ' || c >= 0x7f {
			return fmt.Errorf("%q is not a host in ASCII such as shop.example", text)
		}
	}
	return nil
}

// NamesHost says whether a list names the host of an address: AnyHost, the host itself in any case, or the
// host with its port. An entry without a port is for all of them.
func NamesHost(hosts []string, rawURL string) bool {
	if len(hosts) == 0 {
		return false
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return false
	}
	host := lowerASCII(u.Hostname())
	withPort := net.JoinHostPort(host, portOf(u))
	return slices.ContainsFunc(hosts, func(named string) bool {
		named = lowerASCII(named)
		return named == AnyHost || named == withPort || strings.Trim(named, "[]") == host
	})
}

// MoveTo gives a callback an address of its own. At another host it has no credentials any more: they were
// given for the host that it had. A lane that is an address moves with it, unless the callback is an
// endpoint's.
func (c *Callback) MoveTo(rawURL string) {
	if !SameHost(c.URL, rawURL) {
		c.Headers = WithoutCredentials(c.Headers)
	}
	c.URL, c.Follows = rawURL, false
	if lane, err := AddressLane(rawURL); err == nil && c.EndpointID == "" && IsAddressLane(c.Lane) {
		c.Lane = lane
	}
}
