package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// endpointState says in a few words whether an endpoint is sent to, and how it takes that.
func endpointState(c *console.Console, ep *client.Endpoint, now time.Time) string {
	switch {
	case !ep.Enabled:
		return c.Paint("disabled: "+console.Printable(ep.DisabledReason), console.Red)
	case ep.Paused && !ep.PausedUntil.IsZero():
		return c.Paint("paused for "+console.Brief(ep.PausedUntil.Sub(now)), console.Yellow)
	case ep.Paused:
		return c.Paint("paused", console.Yellow)
	case !ep.FailingSince.IsZero():
		return c.Paint("failing since "+ago(ep.FailingSince, now), console.Red)
	case !ep.LastSuccessAt.IsZero():
		return c.Paint("ok, "+ago(ep.LastSuccessAt, now), console.Green)
	}
	return "not sent to yet"
}

// showEndpoint prints one endpoint.
func showEndpoint(c *console.Console, ep *client.Endpoint, now time.Time) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(c.Out, "%-12s %s\n", name, value)
		}
	}
	line("endpoint", console.Printable(ep.ID))
	line("external id", console.Printable(ep.ExternalID))
	line("name", console.Printable(ep.Name))
	state := endpointState(c, ep, now)
	if ep.Enabled && ep.Paused {
		state = c.Paint("paused", console.Yellow) + " " + pausedText(&ep.Pause)
	}
	line("state", state)
	line("url", console.Printable(ep.URL))
	line("override", overrideText(ep.URLOverride))
	line("topics", console.FirstOf(console.Printable(strings.Join(ep.Topics, " ")), "none: it is told of no events"))
	line("policy", console.FirstOf(choiceText(ep.Policy), projectsOwn))
	line("success", console.FirstOf(choiceText(ep.Success), projectsOwn))
	line("signer", console.FirstOf(choiceText(ep.Signer), projectsOwn))
	headers := slices.SortedFunc(slices.Values(ep.Headers), func(a, b client.Header) int { return strings.Compare(a.Name, b.Name) })
	for _, h := range headers {
		line("header", console.Printable(h.Name+": "+h.Value))
	}
	line("rate", console.FirstOf(console.Printable(ep.Rate), "any"))
	line("in flight", "at most "+numberOr(ep.Concurrency, "the setting lane_concurrency"))
	line("lane", console.Printable(ep.Lane))
	line("failing", console.ClockTime(ep.FailingSince))
	line("last success", console.ClockTime(ep.LastSuccessAt))
	line("last failure", console.ClockTime(ep.LastFailureAt))
	line("made", console.ClockTime(ep.CreatedAt))
	line("changed", console.ClockTime(ep.UpdatedAt))
}

// projectsOwn stands for a choice that an endpoint leaves to others.
const projectsOwn = "the project's default"

func overrideText(override string) string {
	switch override {
	case "deny":
		return "deny: callbacks may not bring an address of their own"
	case "same_host":
		return "same_host: callbacks may bring another path of this host"
	case "any":
		return "any: callbacks may bring any address"
	}
	return console.Printable(override)
}
