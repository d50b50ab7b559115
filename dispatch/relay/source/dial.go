package source

import "net"

// dialer opens connections that break if the server does not answer the probes of an idle connection. On
// Linux they also break if it does not acknowledge what was sent.
func (l limits) dialer() *net.Dialer {
	return &net.Dialer{
		Control: l.control(),
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: l.silence / 3, Interval: l.silence / 6, Count: 4,
		},
	}
}
