package store

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AddressLane returns the default lane of a URL, such as "https://shop.example:443": scheme, host and port in
// lower case. A URL that is not http or https gives an error, worded for a FieldError.
func AddressLane(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("must be an http or https URL, such as https://shop.example/notify")
	}
	return addressOf(u), nil
}

func addressOf(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(lowerASCII(u.Hostname()), portOf(u))
}

// lowerASCII changes the ASCII letters of a host to lower case. Other letters stay: some, such as U+0130,
// become letters of another host in lower case.
func lowerASCII(host string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, host)
}

// IsAddressLane reports whether a lane has the form of a URL, in upper or lower case. Such a lane has only
// callbacks to that host.
func IsAddressLane(lane string) bool {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(lane) >= len(scheme) && strings.EqualFold(lane[:len(scheme)], scheme) {
			return true
		}
	}
	return false
}

// SameHost reports whether two URLs have the same scheme, host and port. A URL without a host, or with
// another scheme than http, https, smtp and smtps, matches no URL, not even itself.
func SameHost(a, b string) bool {
	x, err := url.Parse(a)
	if err != nil || x.Host == "" || defaultPorts[x.Scheme] == "" {
		return false
	}
	y, err := url.Parse(b)
	return err == nil && y.Host != "" && addressOf(x) == addressOf(y)
}

// defaultPorts has the default port of each scheme of a URL to send to. SMTP is for the sinks of alerts.
var defaultPorts = map[string]string{"http": "80", "https": "443", "smtp": "587", "smtps": "465"}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), defaultPorts[u.Scheme], "443")
}

// AnyHost in a list of hosts stands for every host.
const AnyHost = "*"

// CheckHost returns an error, worded for a FieldError, unless the text may stand in a list of hosts. It must
// be a host name or an IP address. A port may follow; without one, the entry stands for any port. Other
// letters than ASCII are refused.
func CheckHost(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "1"
		if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has an invalid port; it must be 1 to 65535", text)
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

// NamesHost reports whether a list of hosts has the host of a URL. The entry may be AnyHost, the host for any
// port, or the host with the URL's port. Upper and lower case are equal.
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

// MoveTo sets the callback's own URL, so it no longer follows its endpoint. A move to another host drops the
// credentials from its headers, because they were given for the old host. If the lane has the form of a URL
// and the callback has no endpoint, the lane becomes that of the new URL.
func (c *Callback) MoveTo(rawURL string) {
	if !SameHost(c.URL, rawURL) {
		c.Headers = WithoutCredentials(c.Headers)
	}
	c.URL, c.Follows = rawURL, false
	if lane, err := AddressLane(rawURL); err == nil && c.EndpointID == "" && IsAddressLane(c.Lane) {
		c.Lane = lane
	}
}
