package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// HealthcheckCommand asks the ops listener of a server, for containers and service managers.
type HealthcheckCommand struct {
	config.Flags
	Ready bool   `help:"Ask /readyz: whether the server can accept callbacks. Without it: whether the process responds."`
	URL   string `placeholder:"URL" help:"URL of the ops listener, such as http://10.0.0.5:8081. Default: ops_listen of the settings."`
}

// Help is the text below the summary of healthcheck --help.
func (*HealthcheckCommand) Help() string {
	return "Prints one line. The exit code is 0 if the server responds with 200 within 3 seconds, else 1. " +
		"Needs no key and no setting but ops_listen. A server whose Redis is lost is ready, and the line " +
		"says what is degraded."
}

// healthTimeout limits the check, connecting included.
const healthTimeout = 3 * time.Second

// Run makes one request.
func (cmd *HealthcheckCommand) Run(ctx context.Context, c *console.Console) error {
	address, err := cmd.address(c)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	found, err := askHealth(ctx, c, address)
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", console.Printable(address), err)
	}
	_, err = fmt.Fprintf(c.Out, "%s: %s\n", console.Printable(address), found)
	return err
}

// address returns the URL to request.
func (cmd *HealthcheckCommand) address(c *console.Console) (string, error) {
	probe := "healthz"
	if cmd.Ready {
		probe = "readyz"
	}
	if cmd.URL == "" {
		address, err := config.OpsAddress(c, &cmd.Flags)
		return "http://" + address + "/" + probe, err
	}
	u, err := url.Parse(cmd.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", errors.New("--url is not a URL such as http://127.0.0.1:8081")
	}
	if name := path.Base(u.Path); name != "healthz" && name != "readyz" {
		u = u.JoinPath(probe)
	}
	return u.String(), nil
}

// healthAnswer is the body of a response of the ops listener.
type healthAnswer struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded"`
	Why      string   `json:"why"`
}

// askHealth requests a probe and returns what it found. A status other than 200 is an error.
func askHealth(ctx context.Context, c *console.Console, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	transport := c.Transport
	if transport == nil {
		own := &http.Transport{DisableKeepAlives: true} // no proxy of the environment
		defer own.CloseIdleConnections()
		transport = own
	}
	res, err := (&http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("no response within %s", healthTimeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", errors.New("nothing listens there")
	case err != nil:
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // the caller names the URL
		}
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return "", fmt.Errorf("read the response: %w", err)
	}
	var answer healthAnswer
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status == "" {
		return "", fmt.Errorf("the response is not from a dispatcher: %s", res.Status)
	}
	found := answer.Status
	if len(answer.Degraded) > 0 {
		found += " (" + strings.Join(answer.Degraded, ", ") + ")"
	}
	if answer.Why != "" {
		found += ": " + answer.Why
	}
	if res.StatusCode != http.StatusOK {
		return "", errors.New(console.Printable(found))
	}
	return console.Printable(found), nil
}
