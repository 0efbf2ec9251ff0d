// Package comingfrom is the documentation's pages for those who used another controller, which kubectl node-ready prints too.
package comingfrom

import "embed"

// Pages are the pages of this folder, NAME.md.
//
//go:embed *.md
var Pages embed.FS
