package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// KeyCommand is the API for API keys from the shell.
type KeyCommand struct {
	Create keyCreate `cmd:"" help:"Make an API key and print it, this once."`
	List   keyList   `cmd:"" help:"List the project's API keys, newest first, those that have ended too."`
	Revoke keyRevoke `cmd:"" help:"End an API key, at once."`
}

// keyCreate makes a key.
type keyCreate struct {
	Name      string   `arg:"" help:"What it is for, such as \"checkout service\"."`
	Scope     []string `required:"" enum:"send,read,operate,admin" placeholder:"SCOPE" help:"What it may do: send (hand over callbacks and events), read (look at everything but secrets), operate (also change callbacks, endpoints and lanes), admin (also keys, secrets, projects and the index). May be repeated. Operate includes read, admin all."`
	ExpiresIn string   `placeholder:"DURATION" help:"It ends after so long, such as 90d. Default: it does not."`
	Reason    string   `placeholder:"TEXT" help:"Why, for the audit."`
	JSON      bool     `name:"json" help:"Print the server's answer for machines; the key is in \"key\"."`
	remote.Flags
}

// Help is what key create --help says below the flags' summary.
func (*keyCreate) Help() string {
	return "The key goes to the standard output and all else to the error output, so that KEY=$(dispatcher key create checkout --scope send) keeps it. " +
		"It needs a key of scope admin itself, such as the admin key of the settings."
}

// Run makes the key.
func (cmd *keyCreate) Run(ctx context.Context, c *console.Console) error {
	in := body{"name": cmd.Name, "scopes": cmd.Scope}
	in.texts("expires_in", cmd.ExpiresIn, "reason", cmd.Reason)
	f := answerFlags{cmd.Flags, cmd.JSON}
	return ask(ctx, c, f, post("/v1/keys", in), func(k *client.NewKey) {
		fmt.Fprintf(c.Err, "%s  %s of the project %s has the scopes %s; it %s\nThis is the only time that the key is shown: keep it now.\n",
			console.Printable(k.ID), console.Printable(k.Name), console.Printable(k.Project), joined(k.Scopes, ", "), keyEnd(&k.Key))
		fmt.Fprintln(c.Out, console.Printable(k.Text))
	})
}

// keyEnd says when a key ends.
func keyEnd(k *client.Key) string {
	if k.ExpiresAt.IsZero() {
		return "lasts until it is revoked"
	}
	return "ends " + console.ClockTime(k.ExpiresAt)
}

// keyList lists the keys.
type keyList struct{ listFlags }

// Run prints the keys.
func (cmd *keyList) Run(ctx context.Context, c *console.Console) error {
	none := "the project has no keys (\"dispatcher key create\" makes one); the admin key of the settings is not among them"
	now := time.Now()
	return list(ctx, c, cmd.listFlags, "/v1/keys", url.Values{}, none, []console.Column[client.Key]{
		{Name: "id", Of: func(k *client.Key) any { return console.Printable(k.ID) }},
		{Name: "name", Of: func(k *client.Key) any { return console.Short(k.Name, 32) }},
		{Name: "scopes", Of: func(k *client.Key) any { return joined(k.Scopes, " ") }},
		{Name: "ends with", Of: func(k *client.Key) any { return "…" + console.Printable(k.Hint) }},
		{Name: "made", Of: func(k *client.Key) any { return ago(k.CreatedAt, now) }},
		{Name: "last used", Of: func(k *client.Key) any { return agoOr(k.LastUsedAt, now, "never") }},
		{Name: "state", Of: func(k *client.Key) any { return keyState(c, k, now) }},
	})
}

// keyState says whether a key is valid, and until when.
func keyState(c *console.Console, k *client.Key, now time.Time) string {
	valid := c.Paint("valid", console.StateColour(client.Succeeded))
	switch {
	case !k.RevokedAt.IsZero():
		return c.Paint("revoked "+ago(k.RevokedAt, now), console.StateColour(client.Dead))
	case k.ExpiresAt.IsZero():
		return valid
	case !k.ExpiresAt.After(now):
		return c.Paint("ended "+ago(k.ExpiresAt, now), console.StateColour(client.Dead))
	}
	return valid + " until " + console.ClockTime(k.ExpiresAt)
}

// keyRevoke ends a key.
type keyRevoke struct {
	ID string `arg:"" help:"Id of the key, key_ and 26 characters (see \"dispatcher key list\")."`
	changeFlags
}

// Run ends the key.
func (cmd *keyRevoke) Run(ctx context.Context, c *console.Console) error {
	if strings.HasPrefix(cmd.ID, config.APIKeyPrefix) {
		return console.Wrong("this is a key itself, not its id: \"dispatcher key list\" shows the ids, which begin with key_")
	}
	r := request{
		http.MethodDelete, "/v1/keys/" + url.PathEscape(cmd.ID), reasonOf(cmd.Reason),
		fmt.Sprintf("no key of the project has the id %q", cmd.ID),
	}
	return ask(ctx, c, cmd.answerFlags, r, func(k *client.Key) {
		fmt.Fprintf(c.Out, "%s  %s is revoked: nobody can use it any more\n", console.Printable(k.ID), console.Printable(k.Name))
	})
}

// ago says how long ago something was.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return console.Brief(d.Truncate(time.Second)) + " ago"
	case d < 24*time.Hour:
		return console.Brief(d.Truncate(time.Minute)) + " ago"
	}
	return console.Brief(d.Truncate(time.Hour)) + " ago"
}

// agoOr is ago for a time that there may not be.
func agoOr(t, now time.Time, otherwise string) string {
	if t.IsZero() {
		return otherwise
	}
	return ago(t, now)
}
