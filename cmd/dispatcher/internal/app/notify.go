package app

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// closeAllowance is the most that a drain takes in addition to its settings: open requests have 10 s to end
// on each of the two listeners, and the relay has relayAllowance.
const closeAllowance = 25*time.Second + relayAllowance

// notify sends the lines of a state to the service manager, as sd_notify(3) does. socket is the variable
// NOTIFY_SOCKET: a path, a name that begins with @ in Linux's abstract namespace, or empty without such a
// manager.
func notify(socket string, lines ...string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// A serviceManager is the service manager that started this process, if there is one.
type serviceManager struct {
	socket string
	log    *slog.Logger
}

func newServiceManager(c *console.Console, log *slog.Logger) serviceManager {
	return serviceManager{c.Lookup("NOTIFY_SOCKET"), log}
}

// notify reports a state. A failure is only logged: the service manager has a timeout.
func (m serviceManager) notify(lines ...string) {
	if err := notify(m.socket, lines...); err != nil {
		m.log.Warn("service manager is not notified", "error", err)
	}
}

// drainNotice returns the lines that announce a drain. The service manager waits for as long as the settings
// allow, even if that is longer than its own timeout.
func drainNotice(s *config.Settings) []string {
	longest := s.ShutdownDelay + s.DrainTimeout + closeAllowance
	return []string{
		"STOPPING=1",
		fmt.Sprint("STATUS=attempts in flight have ", s.DrainTimeout, " to end"),
		fmt.Sprint("EXTEND_TIMEOUT_USEC=", longest.Microseconds()),
	}
}
