package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// showEndpoints prints a list as a table.
func showEndpoints(c *console, list []shownEndpoint, now time.Time) {
	t := c.newTable("id", "external id", "name", "state", "topics", "url")
	for i := range list {
		ep := &list[i]
		t.AppendRow([]any{
			printable(ep.ID), short(ep.ExternalID, 32), short(ep.Name, 24), c.endpointState(ep, now), short(strings.Join(ep.Topics, " "), 32), short(ep.URL, widest),
		})
	}
	t.Render()
}

// endpointState says in a few words whether an endpoint is sent to, and how it takes that.
func (c *console) endpointState(ep *shownEndpoint, now time.Time) string {
	switch {
	case !ep.Enabled:
		return c.paint("disabled: "+printable(ep.DisabledReason), text.FgRed)
	case ep.Paused && ep.PausedUntil != nil:
		return c.paint("paused for "+brief(ep.PausedUntil.Sub(now)), text.FgYellow)
	case ep.Paused:
		return c.paint("paused", text.FgYellow)
	case ep.FailingSince != nil:
		return c.paint("failing since "+ago(*ep.FailingSince, now), text.FgRed)
	case ep.LastSuccessAt != nil:
		return c.paint("ok, "+ago(*ep.LastSuccessAt, now), text.FgGreen)
	}
	return "not sent to yet"
}

// showEndpoint prints one endpoint.
func showEndpoint(c *console, ep *shownEndpoint, now time.Time) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(c.out, "%-12s %s\n", name, value)
		}
	}
	line("endpoint", printable(ep.ID))
	line("external id", printable(ep.ExternalID))
	line("name", printable(ep.Name))
	state := c.endpointState(ep, now)
	if ep.Enabled && ep.Paused {
		state = c.paint("paused", text.FgYellow) + " " + ep.sentence()
	}
	line("state", state)
	line("url", printable(ep.URL))
	line("override", overrideText(ep.URLOverride))
	line("topics", firstOf(printable(strings.Join(ep.Topics, " ")), "none: it is told of no events"))
	line("policy", firstOf(choiceText(ep.Policy), projectsOwn))
	line("success", firstOf(choiceText(ep.Success), projectsOwn))
	line("signer", firstOf(choiceText(ep.Signer), projectsOwn))
	for _, name := range slices.Sorted(maps.Keys(ep.Headers)) {
		line("header", printable(name+": "+ep.Headers[name]))
	}
	line("rate", firstOf(printable(ep.Rate), "any"))
	concurrency := "the setting lane_concurrency"
	if ep.Concurrency != nil {
		concurrency = strconv.Itoa(*ep.Concurrency)
	}
	line("in flight", "at most "+concurrency)
	line("lane", printable(ep.Lane))
	line("failing", clockTime(ep.FailingSince))
	line("last success", clockTime(ep.LastSuccessAt))
	line("last failure", clockTime(ep.LastFailureAt))
	line("made", clockTime(ep.CreatedAt))
	line("changed", clockTime(ep.UpdatedAt))
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
	return printable(override)
}
