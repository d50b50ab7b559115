package cli

import (
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// endpointViewLink creates a link to the merchant's page of an endpoint.
type endpointViewLink struct {
	endpointArg
	ExpiresIn string   `in:"expires_in" placeholder:"DURATION" help:"Lifetime of the link, 1m to 90d. Default: 1h."`
	Resend    bool     `in:"resend" help:"The merchant may also send its callbacks again."`
	Embed     []string `in:"embed" placeholder:"ORIGIN" help:"Origin whose pages may show the link in a frame, such as https://portal.example. Can be repeated."`
	Lang      string   `in:"lang" placeholder:"CODE" help:"en or zh-CN. Default: the language of the reader's browser."`
	changeFlags
}

// Help is the text below the summary of endpoint view-link --help.
func (*endpointViewLink) Help() string {
	return "The page shows the callbacks of this endpoint and their attempts, and nothing else. Anyone who " +
		"has the link can open it, without a key. It cannot be printed again. " +
		"\"dispatcher endpoint revoke-view-links\" ends all links of an endpoint. The link goes to the " +
		"standard output, and everything else to the error output."
}

// Run creates the link and prints it.
func (cmd *endpointViewLink) Run(c *session) error {
	return printEndpointResponse(c, cmd.ID, post("/view_link", cmd), func(l *client.ViewLink) {
		fmt.Fprintf(c.Err, "link to the callbacks of %s, until %s\n", console.Printable(cmd.ID),
			console.ClockTime(l.ExpiresAt))
		if strings.HasPrefix(l.URL, "/") {
			fmt.Fprintln(c.Err, "The server does not know its address: put it before the path, or set "+
				"public_url.")
		}
		printLines(c, l.URL)
	})
}

// endpointRevokeLinks revokes the links to the merchant's page of an endpoint.
type endpointRevokeLinks struct {
	endpointArg
	changeFlags
}

// Run revokes the links.
func (cmd *endpointRevokeLinks) Run(c *session) error {
	return printEndpointResponse(c, cmd.ID, post("/view_link/revoke", cmd), func(ep *client.Endpoint) {
		c.printf("%s  all links revoked\n", ep.ID)
	})
}
